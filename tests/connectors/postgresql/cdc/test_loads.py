"""Loads of single tables, beside others that are followed, and loads that go on after an error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
import pytest

from dataflow_assets.connectors.postgresql import client
from dataflow_assets.connectors.postgresql.cdc import held_snapshots, publication, snapshot, tables
from dataflow_assets.connectors.postgresql.cdc.held_snapshots import HELD
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.sink.session import PostgresqlSinkSession
from dataflow_assets.contracts import Checkpoint, Limit, PartSlice, Run
from dataflow_assets.errors import DataflowError, Outdated, PermanentError, TransientError
from dataflow_assets.runs.request import Start
from dataflow_assets.runs.reset import load_again
from tests.connectors.postgresql.cdc.followed import CHECKPOINT, Followed


class Union(Followed):
    """Tables `source` and `more`, of the same columns and other keys, into one target."""

    @property
    def several(self) -> Followed:
        """The manifest, once `more` is in it."""
        return self.but(tables=[f"{self.schema}.source", f"{self.schema}.more"])

    def is_both(self) -> bool:
        """Whether the target has exactly the rows of both tables."""
        both = "SELECT * FROM source UNION ALL SELECT * FROM more ORDER BY 1"
        return self.rows() == self.run(both)


@pytest.fixture
def union(followed: Followed) -> Union:
    made = Union(followed.dsn, followed.schema, followed.engine)
    made.make("id int PRIMARY KEY, name text")
    made.run("CREATE TABLE more (LIKE source INCLUDING ALL)")
    made.run("INSERT INTO source SELECT i, 'row ' || i FROM generate_series(1, 100) i")
    made.run("INSERT INTO more SELECT i, repeat('x', 500) FROM generate_series(1001, 1900) i")
    return made


def _append(union: Followed) -> None:
    union.sink_options = {}
    union.run("DROP TABLE target; CREATE TABLE target (id int, name text)")


@pytest.mark.parametrize("upserts", [True, False])
def test_a_table_that_is_added_to_the_manifest_is_loaded(union: Union, upserts: bool) -> None:
    """Nothing twice, also where rows are appended; the other table is not loaded again."""
    if not upserts:
        _append(union)
    union.drain()
    union.run("INSERT INTO source VALUES (101, 'new'); INSERT INTO more VALUES (2000, 'early')")
    several = union.several
    with closing(several.source.open("followed/asked")) as session:
        position = union.position()["wal"]
        assert session.lags("wal", position, session.end()["wal"])
    assert several.drain() == 1 + 901
    assert union.is_both()
    union.run("INSERT INTO more VALUES (2001, 'later'); INSERT INTO source VALUES (102, 'later')")
    assert several.drain() == 2
    assert union.is_both()
    with closing(several.source.open("followed/asked")) as session:
        assert not session.lags("wal", union.position()["wal"], session.end()["wal"])


@pytest.mark.crash
@pytest.mark.parametrize(
    "failpoint",
    [
        "drain.begun",
        "postgresql-cdc.read",
        "postgresql-cdc.snapshot",
        pytest.param("drain.finished", marks=pytest.mark.full),
        pytest.param("postgresql.after-commit", marks=pytest.mark.full),
    ],
)
def test_a_kill_while_a_table_is_added(union: Union, failpoint: str) -> None:
    """Into a target that appends, wherever no part of the load is stored yet."""
    _append(union)
    union.drain()
    union.run("INSERT INTO source VALUES (101, 'new')")
    several = union.several
    assert several.killed_at(failpoint)
    union.run("INSERT INTO more VALUES (2001, 'later'); INSERT INTO source VALUES (102, 'later')")
    several.drain()
    several.drain()
    assert union.is_both()


@pytest.mark.crash
def test_a_kill_in_the_middle_of_a_table_that_is_added(union: Union) -> None:
    """Parts are stored, and the snapshot is gone: the table is read again, the other is not."""
    union.drain()
    several = union.several
    several.limit = Limit(bytes=64 * 1024)
    assert several.killed_at("postgresql.after-commit", nth=4)
    union.run("DELETE FROM more WHERE id < 1500; UPDATE more SET name = 'changed' WHERE id > 1800")
    union.run("INSERT INTO source VALUES (101, 'new')")
    several.drain()
    several.drain()
    assert union.is_both()


@pytest.mark.crash
def test_a_table_that_is_added_behind_a_kill(union: Union) -> None:
    """A stretch is recorded, and read again where the manifest has another table."""
    _append(union)
    union.run(f"CREATE PUBLICATION {union.schema} FOR TABLE source, more")
    union.drain()
    union.run("INSERT INTO source VALUES (101, 'new'); INSERT INTO more VALUES (2001, 'early')")
    assert union.killed_at("postgresql.before-commit")
    union.several.drain()
    assert union.is_both()


def test_a_publication_that_the_flow_may_not_alter(union: Union) -> None:
    union.drain()
    several = union.several.but(createPublicationIfNotExists=False)
    with pytest.raises(
        PermanentError,
        match=r"lacks table s_\w+\.more: run ALTER PUBLICATION .* ADD TABLE [^.]*\S+$",
    ):
        several.drain()
    union.run(f'ALTER PUBLICATION "{union.schema}" ADD TABLE more')
    several.drain()
    assert union.is_both()


def test_one_table_is_loaded_again(union: Union) -> None:
    """The target's rows were damaged; changes before the load come too, deletions among them."""
    several = union.several
    several.drain()
    union.run("DELETE FROM target WHERE id > 1500; UPDATE target SET name = 'damaged'")
    union.run("DELETE FROM more WHERE id = 1001; INSERT INTO source VALUES (101, 'new')")
    load_again(several.flow, Run(), (f"{union.schema}.more",), confirmed=False)
    several.drain()
    assert union.rows("target", "id") == union.run(
        "SELECT id FROM source UNION ALL SELECT id FROM more ORDER BY 1"
    )
    damaged = union.run("SELECT id FROM target WHERE name = 'damaged' ORDER BY 1")
    assert damaged == [(number,) for number in range(1, 101)]
    several.drain(Start(reload=(f"{union.schema}.source",)))
    assert union.is_both()
    assert several.drain() == 0


def test_a_table_that_is_appended_to_is_loaded_again_once_somebody_has_confirmed(
    union: Union,
) -> None:
    _append(union)
    several = union.several
    several.drain()
    with pytest.raises(PermanentError, match=r"would store its rows twice.*--yes"):
        several.drain(Start(reload=(f"{union.schema}.more",)))
    union.run("INSERT INTO more VALUES (2000, 'new')")
    union.run("DELETE FROM target WHERE id > 1000")
    several.drain(Start(reload=(f"{union.schema}.more",), confirmed=True))
    assert union.is_both()


@pytest.mark.crash
@pytest.mark.parametrize("way", ["always", "reload"])
def test_a_load_that_died_is_finished_before_another_one(union: Union, way: str) -> None:
    """Its rows are in the target, and some of them are deleted at the source by now.

    A table that was stored whole is not loaded again before the load is through: row 1007 tells.
    """
    union.run("INSERT INTO source SELECT i, repeat('x', 500) FROM generate_series(101, 900) i")
    flow = union.several.but(snapshotMode="always") if way == "always" else union.several
    flow.limit = Limit(bytes=64 * 1024)
    again = Start(reload=(f"{flow.schema}.source", f"{flow.schema}.more"))
    assert flow.killed_at("postgresql.after-commit", nth=10)
    (stored,) = flow.run("SELECT count(*) FILTER (WHERE id > 1000), count(*) FROM target")
    assert stored[0] == 900
    assert 900 < stored[1] < 1_800
    flow.run("DELETE FROM source WHERE id % 2 = 0; DELETE FROM more WHERE id % 2 = 0")
    flow.run("UPDATE target SET name = 'damaged' WHERE id = 1007")
    if way == "reload":
        with pytest.raises(PermanentError, match="Let the flow run once"):
            flow.drain(again)
        assert flow.run("SELECT count(*) FROM target") == [stored[1:]]
    flow.drain()
    assert flow.run("SELECT id FROM target WHERE name = 'damaged'") == [(1007,)]
    assert [row[:1] for row in flow.rows()] == flow.run(
        "SELECT id FROM source UNION ALL SELECT id FROM more ORDER BY 1"
    )
    flow.drain(CHECKPOINT if way == "always" else again)
    assert union.is_both()


@pytest.mark.parametrize("upserts", [True, False])
def test_a_load_that_runs_is_not_ended_by_who_may_not_load_again(
    union: Union, monkeypatch: pytest.MonkeyPatch, upserts: bool
) -> None:
    """A command that is refused, and a run that is, take nothing from whoever loads."""
    if not upserts:
        _append(union)
    several, more = union.several, f"{union.schema}.more"
    finish, refused = PostgresqlSinkSession.finish, list[str]()

    def meanwhile(self: PostgresqlSinkSession, *given: Any) -> Checkpoint:
        if not refused:
            for ask in (
                lambda: load_again(several.flow, Run(), (more,), confirmed=True),
                lambda: several.drain(Start(reload=(more,), confirmed=True)),
            ):
                with pytest.raises(PermanentError, match="are being loaded") as caught:
                    ask()
                refused.append(str(caught.value))
        return finish(self, *given)

    monkeypatch.setattr(PostgresqlSinkSession, "finish", meanwhile)
    assert several.drain() == 1_000
    assert len(refused) == 2
    assert union.is_both()
    load_again(several.flow, Run(), (more,), confirmed=True)


@pytest.mark.parametrize("upserts", [True, False])
def test_a_table_of_which_no_rows_were_loaded_is_loaded_when_somebody_asks(
    union: Union, upserts: bool
) -> None:
    """`snapshotMode: never` loads nothing by itself."""
    if not upserts:
        _append(union)
    several = union.several.but(snapshotMode="never")
    several.drain()
    union.run("INSERT INTO more VALUES (2000, 'new'); INSERT INTO source VALUES (101, 'new')")
    several.drain()
    union.run("DELETE FROM target WHERE id > 1000")
    several.drain(Start(reload=(f"{union.schema}.more",), confirmed=True))
    assert [row[0] for row in union.rows()] == [101, *range(1001, 1901), 2000]
    union.run("INSERT INTO more VALUES (2001, 'later')")
    assert several.drain() == 1


def test_a_table_that_the_flow_does_not_read_cannot_be_loaded(union: Union) -> None:
    union.drain()
    with pytest.raises(PermanentError, match=r"reads no table public\.other; its tables are s_"):
        union.drain(Start(reload=("other",)))
    with pytest.raises(PermanentError, match="reload goes on from the checkpoint"):
        union.drain(Start("earliest", reload=("other",)))


@contextmanager
def _refusing(union: Followed, condition: str) -> Iterator[None]:
    """The target refuses some rows: an error in the middle of a load."""
    union.run(f"ALTER TABLE target ADD CONSTRAINT refusing CHECK ({condition})")
    yield
    union.run("ALTER TABLE target DROP CONSTRAINT refusing")


@pytest.mark.parametrize("upserts", [True, False])
def test_an_error_in_a_first_load_lets_stored_parts_be(
    union: Union, monkeypatch: pytest.MonkeyPatch, upserts: bool
) -> None:
    """The next attempt, or run of the process, reads what is left, of the same snapshot."""
    if not upserts:
        _append(union)
    more = union.but(tables=[f"{union.schema}.more"])
    more.limit = Limit(bytes=64 * 1024)
    made = []
    taken = snapshot.Snapshot.__init__

    def counted(self: snapshot.Snapshot, *given: object) -> None:
        made.append(self)
        taken(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot.Snapshot, "__init__", counted)
    with _refusing(union, "id < 1800"), pytest.raises(PermanentError):
        more.drain()
    first = union.rows()
    union.run("INSERT INTO more VALUES (2001, 'later')")
    if upserts:
        union.run("DELETE FROM more WHERE id = 1001")
    more.drain()
    more.drain()
    assert len(made) == 1
    if upserts:
        assert union.rows() == union.rows("more")
    else:
        later = [(number, "x" * 500) for number in range(1001, 1901)]
        assert union.rows() == [*later, (2001, "later")]
    assert len(first) < 900


def test_a_snapshot_that_nobody_uses_is_let_go(
    union: Union, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables can be altered again."""
    monkeypatch.setattr(held_snapshots, "UNUSED_SECONDS", 0.2)
    union.plan()
    time.sleep(0.5)
    union.run("SET lock_timeout = '1s'; ALTER TABLE source ADD COLUMN more int")
    assert not HELD._held


@pytest.fixture
def impatient(union: Union, monkeypatch: pytest.MonkeyPatch) -> Union:
    """Its sessions wait for a lock as long as a test can."""
    monkeypatch.setitem(client._SETTINGS, "lock_timeout", "300ms")
    union.dsn += "?connect_timeout=9"  # other links than those that wait in the pool
    return union


@contextmanager
def _altering(union: Union) -> Iterator[threading.Thread]:
    """Somebody who waits for the locks of a snapshot, and is through at the end."""
    altering = threading.Thread(target=union.run, args=["ALTER TABLE source ADD COLUMN n int"])
    altering.start()
    while not union.run("SELECT 1 FROM pg_locks WHERE NOT granted AND mode LIKE 'AccessExcl%'"):
        time.sleep(0.02)
    yield altering
    altering.join(10)
    assert not altering.is_alive()


@pytest.mark.parametrize("waits", ["opening", "planning"])
def test_a_snapshot_gives_way_to_who_alters_a_table(impatient: Union, waits: str) -> None:
    """A session that looks at the table waits behind the statement, and that for the snapshot."""
    union = impatient
    with closing(union.source.open("followed/loads")) as session:
        session.plan(session.start(), union.limit)
        assert HELD._held
        looks: dict[str, Callable[[], object]] = {
            "opening": partial(union.source.open, "followed/loads"),
            "planning": partial(session.plan, session.start(), union.limit),
        }
        with _altering(union), pytest.raises(TransientError, match="lock timeout"):
            looks[waits]()
    assert not HELD._held
    union.run("ALTER TABLE target ADD COLUMN n int")
    assert union.drain() == 100


@pytest.mark.parametrize("look", [1, 2], ids=["before the slot is made", "of the snapshot"])
def test_a_load_does_not_wait_behind_who_waits_for_its_locks(
    impatient: Union, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    """Another connection than the one that has the locks would, for as long as it can."""
    union, looks, found = impatient, list[object](), tables.tables
    altering = ExitStack()

    def noted(*given: Any) -> list[tables.CdcTable]:
        looks.append(given)
        if len(looks) == look:
            altering.enter_context(_altering(union))
        return found(*given)

    with altering, union._letting_go(), closing(union.source.open("followed/loads")) as session:
        monkeypatch.setattr(tables, "tables", noted)
        assert session.plan(session.start(), union.limit).slices
    assert len(looks) == 2


def test_a_snapshot_stays_where_something_else_fails(
    union: Union, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where rows are appended the parts that are left cannot be read of another one."""

    def full(*_: object, **__: object) -> None:
        raise PostgresqlFailure("sorry, too many clients already", "53300")

    with closing(union.source.open("followed/loads")) as session:
        session.plan(session.start(), union.limit)
        monkeypatch.setattr(tables, "tables", full)
        with pytest.raises(DataflowError, match="too many clients"):
            union.source.open("followed/loads")
        monkeypatch.setattr(publication, "published_tables", full)
        with pytest.raises(DataflowError, match="too many clients"):
            session.plan(session.start(), union.limit)
    assert HELD._held


def test_parts_are_cut_by_their_large_values_and_again_where_less_is_allowed(
    union: Union,
) -> None:
    """They lie beside the table's blocks, and a lane allows less after a part took too long."""
    union.run("ALTER TABLE source ALTER name SET STORAGE EXTERNAL")
    union.run("INSERT INTO source SELECT i, repeat('x', 20000) FROM generate_series(101, 700) i")
    with closing(union.source.open("followed/loads")) as session:
        whole = session.plan(session.start(), Limit(bytes=64 * 1024 * 1024))
        assert len(whole.slices) == 1
        (piece,) = whole.slices
        assert isinstance(piece, PartSlice)
        for cut in (session.smaller, session.renew):
            parts = cut(piece, Limit(bytes=4 * 1024 * 1024))
            pieces = [replace(piece, part=part) for part in parts]
            batches = [[*union.source.batches(one, frozenset())] for one in pieces]
            found = [sum(batch.num_rows for batch in each) for each in batches]
            assert len(found) >= 3
            assert sum(found) == 700
            assert max(found) < 350
    span = union.plan()
    assert len(span.slices) == 1


def test_the_parts_of_many_tables_are_few_enough_to_be_recorded(union: Union) -> None:
    """Each names all tables of the flow in the position that it ends in."""
    names = [f"a_table_with_a_long_name_{number}" for number in range(60)]
    for name in names:
        union.run(f"CREATE TABLE {name} (LIKE source INCLUDING ALL)")
    union.run("INSERT INTO source SELECT i, repeat('x', 7000) FROM generate_series(101, 1100) i")
    several = union.but(tables=[f"{union.schema}.{name}" for name in ["source", *names]])
    several.limit = Limit(bytes=8192)
    span = several.plan()
    recorded = sum(len(str(piece.upto)) + len(piece.part) for piece in span.slices
                   if isinstance(piece, PartSlice))  # fmt: skip
    assert 61 < len(span.slices) < 400
    assert recorded < 600_000


def test_a_snapshot_is_found_again_with_another_password(union: Union) -> None:
    with closing(union.source.open("followed/loads")) as session:
        span = session.plan(session.start(), union.limit)
    union.dsn = union.dsn.replace("postgres@", "postgres:changed@")
    with closing(union.source.open("followed/loads")) as session:
        again = [session.smaller(piece, union.limit) for piece in span.slices
                 if isinstance(piece, PartSlice)]  # fmt: skip
    assert len(again) == len(span.slices) > 0


def test_under_constant_writes_a_table_that_is_added_is_right_in_the_end(union: Union) -> None:
    stop = threading.Event()

    def write(table: str, low: int) -> None:
        with psycopg.connect(union.dsn, autocommit=True) as connection:
            connection.execute(f'SET search_path TO "{union.schema}"'.encode())
            while not stop.wait(0.01):
                connection.execute(
                    f"INSERT INTO {table} SELECT {low} + (random() * 900)::int, random()::text "
                    "ON CONFLICT (id) DO UPDATE SET name = excluded.name".encode()
                )
                connection.execute(
                    f"DELETE FROM {table} WHERE id = {low} + (random() * 900)::int".encode()
                )

    union.drain()
    several = union.several
    several.limit = Limit(bytes=64 * 1024)
    writers = [
        threading.Thread(target=write, args=args) for args in [("source", 1), ("more", 1001)] * 2
    ]
    for writer in writers:
        writer.start()
    try:
        for failpoint in ("postgresql-cdc.snapshot", "postgresql.after-commit", "drain.finished"):
            several.killed_at(failpoint, nth=2)
            several.drain()
        several.drain(Start(reload=(f"{union.schema}.source",)))
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    union.run("SELECT pg_logical_emit_message(true, 'test', 'the end')")
    several.drain()
    assert union.is_both()


def test_each_run_loads_all_tables_where_the_manifest_says_so(union: Union) -> None:
    always = union.but(snapshotMode="always")
    assert always.drain() == 100
    union.run("INSERT INTO source VALUES (101, 'new')")
    union.run("UPDATE target SET name = 'damaged' WHERE id = 7")
    always.drain()
    assert union.same()
    assert always.source.traits.incremental is False


def test_a_run_that_tries_again_goes_on_with_its_load(
    union: Union, monkeypatch: pytest.MonkeyPatch
) -> None:
    always = union.but(snapshotMode="always")
    always.drain()
    finish, failed = PostgresqlSinkSession.finish, list[bool]()

    def failing(self: PostgresqlSinkSession, *given: Any) -> Checkpoint:
        done = finish(self, *given)
        if not failed:
            failed.append(True)
            raise TransientError("the answer is lost")
        return done

    monkeypatch.setattr(PostgresqlSinkSession, "finish", failing)
    assert always.drain() == 100
    assert failed
    assert union.same()


def test_a_load_whose_snapshot_is_gone_stops_where_rows_are_appended(union: Union) -> None:
    _append(union)
    union.drain()
    several = union.several
    several.limit = Limit(bytes=64 * 1024)
    assert several.killed_at("postgresql.after-commit", nth=4)
    with pytest.raises(Outdated, match=r"would repeat rows"):
        several.drain()
