"""The stream of a slot and the snapshot before it: each change once, in order, whatever dies."""

from __future__ import annotations

import json
import os
import resource
import threading
from contextlib import closing
from itertools import pairwise

import psycopg
import pytest

from dataflow_assets.connectors.postgresql import PostgresqlCdcSource
from dataflow_assets.connectors.postgresql.cdc import idle_log, slot
from dataflow_assets.connectors.postgresql.cdc import lag as lag_module
from dataflow_assets.connectors.postgresql.cdc.look import CdcSeen, look
from dataflow_assets.connectors.postgresql.cdc.position import (
    Lsn,
    Reached,
    StreamPart,
    dump,
    parse,
    parse_part,
)
from dataflow_assets.connectors.postgresql.cdc.read import CdcStream
from dataflow_assets.contracts import Limit, PartSlice, Positions, Run, SourceSession, system_name
from dataflow_assets.errors import PermanentError
from dataflow_assets.runs.request import Start
from dataflow_assets.runs.take_over import adopt_file
from tests.clock import Clock
from tests.connectors.postgresql.cdc.followed import Followed, tuples

COLUMNS = "id int PRIMARY KEY, name text, amount numeric(12,2)"
CHANGES = """
INSERT INTO source SELECT i, 'new ' || i, i / 3.0 FROM generate_series(101, 140) i;
UPDATE source SET name = 'changed ' || id WHERE id % 3 = 0;
DELETE FROM source WHERE id % 7 = 0;
UPDATE source SET id = -id WHERE id IN (5, 11);
"""
STREAM_FAILPOINTS = (
    "drain.begun",
    "postgresql-cdc.read",
    "postgresql.before-commit",
    "postgresql.after-commit",
    "drain.passed",
    "postgresql.finish",
    "drain.finished",
)
SNAPSHOT_FAILPOINTS = (
    "postgresql-cdc.snapshot",
    "postgresql-cdc.snapshot-batch",
    "postgresql.after-commit",
    *(
        pytest.param(name, marks=pytest.mark.full)
        for name in ("drain.begun", "postgresql.before-commit", "drain.passed", "postgresql.finish")
    ),
)


@pytest.fixture
def table(followed: Followed) -> Followed:
    followed.make(COLUMNS)
    followed.run("INSERT INTO source SELECT i, 'row ' || i, i FROM generate_series(1, 100) i")
    return followed


def test_the_target_follows(table: Followed) -> None:
    assert table.drain() == 100
    assert table.same()
    assert table.drain() == 0
    table.run(CHANGES)
    table.drain()
    assert table.same()
    assert table.drain() == 0


@pytest.mark.crash
@pytest.mark.parametrize("failpoint", STREAM_FAILPOINTS)
def test_a_kill_at_every_step_of_the_stream(table: Followed, failpoint: str) -> None:
    """Values and order, by a target that every change is appended to."""
    table.options = {"snapshotMode": "never", "envelopeFormat": "debezium"}
    table.sink_options = {}
    table.run("CREATE TABLE target_log (n bigserial, payload jsonb)")
    table.run("DROP TABLE target; ALTER TABLE target_log RENAME TO target")
    begin = table.start()
    table.run(CHANGES)
    expected = [json.loads(body)["payload"] for body in table.bodies(begin)]
    assert len(expected) == 40 + 46 + 20 + 4
    assert table.killed_at(failpoint)
    table.drain()
    assert [row[1] for row in table.rows()] == expected
    assert table.drain() == 0


@pytest.mark.crash
@pytest.mark.parametrize("failpoint", SNAPSHOT_FAILPOINTS)
def test_a_kill_at_every_step_of_the_snapshot(table: Followed, failpoint: str) -> None:
    """Into a target that upserts: parts are read again, of a later snapshot."""
    table.run("INSERT INTO source SELECT i, repeat('x', 500), i FROM generate_series(201, 900) i")
    table.limit = Limit(bytes=64 * 1024)
    assert table.killed_at(failpoint)
    table.run(CHANGES)
    table.drain()
    table.drain()
    assert table.same()


def test_a_span_is_read_alike_again_and_others_lie_beside_it(table: Followed) -> None:
    """Any bound will do, one in the middle of a commit record too."""
    begin = Lsn.parse(json.loads(str(table.start()["wal"]))["lsn"])
    for number in range(300, 330):
        table.run("INSERT INTO source VALUES (%s, 'x', 1)", number)
    end = table.log_end()
    source = table.source

    def ids(low: int, high: int) -> list[int]:
        part = StreamPart(str(Lsn(low)), str(Lsn(high)))
        batches = list(CdcStream(source, frozenset({"lsn"}), [part]).batches(part))
        return [row[0] for row in tuples(batches, ["id"])]

    whole = ids(begin.value, end.value)
    assert whole == list(range(300, 330))
    step = (end.value - begin.value) // 37 + 3
    bounds = [*range(begin.value, end.value, step), end.value]
    pieces = [ids(low, high) for low, high in pairwise(bounds)]
    assert [one for piece in pieces for one in piece] == whole
    assert sum(map(len, pieces)) == 30


def test_what_every_branch_has_is_let_go_and_cannot_be_asked_for(table: Followed) -> None:
    table.drain()
    first = dict(table.position())
    table.run(CHANGES)
    table.drain()
    confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
    ((lsn,),) = table.run(confirmed, table.schema)
    reached = parse(table.position()["wal"])
    assert reached is not None
    assert str(reached.lsn) == lsn
    with pytest.raises(PermanentError, match="has let go what lies before"):
        table.plan(first)
    part = StreamPart(json.loads(str(first["wal"]))["lsn"], lsn)
    with pytest.raises(PermanentError, match="Load the tables again"):
        list(CdcStream(table.source, frozenset(), [part]).batches(part))


def test_nothing_is_released_before_every_branch_has_committed(table: Followed) -> None:
    """A run that reads and dies before its release leaves the slot where it was."""
    begin = table.start()
    table.options["snapshotMode"] = "never"
    table.run(CHANGES)
    assert table.killed_at("drain.finished")
    confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
    ((lsn,),) = table.run(confirmed, table.schema)
    assert Lsn.parse(lsn).value <= Lsn.parse(json.loads(str(begin["wal"]))["lsn"]).value


def test_other_tables_and_rolled_back_changes_are_not_read(table: Followed) -> None:
    table.run("CREATE TABLE other (id int PRIMARY KEY)")
    table.drain()
    table.run(f'ALTER PUBLICATION "{table.schema}" ADD TABLE other')
    table.run("INSERT INTO other SELECT generate_series(1, 50)")
    table.run("BEGIN; INSERT INTO source VALUES (1000, 'no', 0); ROLLBACK")
    table.run("BEGIN; SAVEPOINT s; INSERT INTO source VALUES (1001, 'no', 0); ROLLBACK TO s; "
              "INSERT INTO source VALUES (1002, 'yes', 0); COMMIT")  # fmt: skip
    assert table.drain() == 1
    assert table.same()


def test_idle_tables_do_not_keep_the_log(table: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is committed for a few kilobytes of others' log; for much of it the slot moves on."""
    table.drain()
    monkeypatch.setattr(idle_log, "IDLE_BYTES", 1 << 40)
    with closing(table.source.open("followed/idle")) as session:
        position = table.position()
        table.run("CREATE TABLE noise AS SELECT generate_series(1, 100) i")
        assert session.plan(position, Limit()).empty
        table.wait_until_free()
        assert not session.lags("wal", position["wal"], session.end()["wal"])
        monkeypatch.setattr(idle_log, "IDLE_BYTES", 10_000)
        table.run("INSERT INTO noise SELECT generate_series(1, 1000)")
        assert session.lags("wal", position["wal"], session.end()["wal"])
        span = session.plan(position, Limit())
        assert not span.empty
        assert [b.num_rows for piece in span.slices for b in
                table.source.batches(piece, frozenset())] == [0]  # fmt: skip


def test_an_idle_database_lets_the_log_of_others_go(table: Followed) -> None:
    """Nothing is written into it for that: the slot moves by what others write."""
    table.drain()
    retained = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8 "
    retained += f"FROM pg_replication_slots WHERE slot_name = '{table.schema}'"
    name = f"{table.schema}_other"
    table.run(f"CREATE DATABASE {name} STRATEGY file_copy")
    try:
        with psycopg.connect(table.dsn, dbname=name, autocommit=True) as other:
            other.execute(
                "CREATE TABLE t AS SELECT repeat('x', 900) FROM generate_series(1, 20000)"
            )
        ((before,),) = table.run(retained)
        for _ in range(2):
            table.run("CHECKPOINT")  # as the server does by itself every few minutes
            table.drain()
        ((after,),) = table.run(retained)
    finally:
        table.run(f"DROP DATABASE {name} WITH (FORCE)")
    assert before > 15_000_000
    assert after < 2_000_000


def test_a_look_that_ends_early_leaves_nobody_behind(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its walsender is told to stop: it would look through all that follows before it notices."""
    canceled, cancel = list[bool](), psycopg.Connection.cancel_safe

    def noted(connection: psycopg.Connection, *, timeout: float) -> None:
        cancel(connection, timeout=timeout)
        canceled.append(connection.closed)

    monkeypatch.setattr(psycopg.Connection, "cancel_safe", noted)
    monkeypatch.setattr(slot, "_late", lambda _deadline: False)  # nobody else ends it
    table.drain()
    after = parse(table.position()["wal"])
    assert after is not None
    table.run("INSERT INTO source VALUES (300, 'x', 1)")
    table.run("CREATE TABLE noise (t text)")
    for _ in range(20):
        table.run("INSERT INTO noise SELECT repeat('x', 200) FROM generate_series(1, 10000)")
    end = table.log_end()
    assert look(table.source, after.lsn, end).changes == 1
    assert canceled == [False]
    table.wait_until_free()


@pytest.mark.parametrize("seconds", [0, 10])
def test_whoever_asks_for_the_end_does_not_wait_for_a_long_look(
    table: Followed, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """A sensor asks for many flows: much log that nobody has read is news, without reading it."""
    table.drain()
    table.options["heartbeatIntervalSeconds"] = seconds
    position = table.position()["wal"]
    table.run("CREATE TABLE noise AS SELECT generate_series(1, 1000) i")
    monkeypatch.setattr(idle_log, "LOOK_BYTES", 10_000)
    with closing(table.source.open("followed/asked")) as session:
        monkeypatch.setattr(idle_log, "look", None)
        assert session.lags("wal", position, session.end()["wal"])


def test_the_lag_of_a_long_stretch_is_estimated_from_its_beginning(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How much the server logs by itself, as behind a checkpoint, is not known before."""
    table.drain()
    at = parse(table.position()["wal"])
    assert at is not None
    asked: list[int] = []

    def noted(source: PostgresqlCdcSource, after: Lsn, upto: Lsn, most: int) -> CdcSeen:
        asked.append(upto.value - after.value)
        return look(source, after, upto, most)

    table.run("INSERT INTO source SELECT i, 'x', 1 FROM generate_series(301, 305) i")
    begin = table.log_end().value - at.lsn.value
    table.run("CREATE TABLE noise (i int)")
    while table.log_end().value - at.lsn.value < 3 * begin:
        table.run("INSERT INTO noise SELECT generate_series(1, 10000)")
    table.wait_until_free()  # or nobody looks
    with closing(table.source.open("followed/lag")) as session:
        monkeypatch.setattr(lag_module, "LOOK_BYTES", begin)
        monkeypatch.setattr(idle_log, "look", noted)
        lag = session.lag(table.position())
    assert asked == [begin]
    assert lag.bytes is not None
    assert lag.bytes >= 3 * begin
    assert lag.records == 5 * lag.bytes // begin


@pytest.mark.parametrize("rest", [0.0, 1e6])
def test_the_lag_is_not_looked_for_again_in_log_without_changes(
    table: Followed, monkeypatch: pytest.MonkeyPatch, rest: float
) -> None:
    """The report of the last micro-batch is followed by that of the run."""
    table.drain()
    looks, position = _looks(monkeypatch), table.position()
    monkeypatch.setattr(idle_log, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(idle_log, "REST", rest)
    with closing(table.source.open("followed/lag")) as session:
        table.run("CREATE TABLE noise AS SELECT generate_series(1, 10000) i")
        assert _records(session, table, position) == 0
        table.run("INSERT INTO noise VALUES (1)")
        assert _records(session, table, position) == 0
        table.run("INSERT INTO source VALUES (300, 'x', 1)")
        assert _records(session, table, position) == (0 if rest else 1)
    assert len({look.value for look in looks}) == (1 if rest else 3)


def test_looks_that_take_long_are_far_apart(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that stays open makes each of them go through all log since its beginning."""
    table.drain()
    looks, clock = list[float](), Clock()

    def slow(source: PostgresqlCdcSource, after: Lsn, upto: Lsn, most: int) -> CdcSeen:
        looks.append(clock.now)
        clock.now += 2
        return look(source, after, upto, most)

    monkeypatch.setattr(idle_log, "look", slow)
    monkeypatch.setattr(idle_log, "time", clock)
    position = table.position()
    table.run("CREATE TABLE noise (i int)")
    with closing(table.source.open("followed/asked")) as session:
        for _ in range(45):
            table.run("INSERT INTO noise VALUES (1)")
            assert not session.lags("wal", position["wal"], session.end()["wal"])
            clock.now += 1
        assert [later - look for look, later in pairwise(looks)] == [22, 22]
        table.run("INSERT INTO source VALUES (300, 'x', 1)")
        while not session.lags("wal", position["wal"], session.end()["wal"]):
            clock.now += 1
        assert len(looks) == 4
        assert not session.plan(position, Limit()).empty


def test_what_a_look_has_found_is_not_looked_for_again(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who plans asks behind who asks for news: the server would read a large transaction twice."""
    table.drain()
    asked = list[tuple[Lsn, Lsn]]()

    def counted(source: PostgresqlCdcSource, after: Lsn, upto: Lsn, most: int) -> CdcSeen:
        asked.append((after, upto))
        return look(source, after, upto, most)

    monkeypatch.setattr(idle_log, "look", counted)
    with closing(table.source.open("followed/asked")) as session:
        for key in (300, 301):
            position = table.position()
            table.run("INSERT INTO source VALUES (%s, 'x', 1)", key)
            assert session.lags("wal", position["wal"], session.end()["wal"])
            assert not session.plan(position, Limit(), session.end()).empty
            assert len(asked) == 1
            asked.clear()
            table.drain()
            asked.clear()
            assert session.plan(table.position(), Limit()).empty
            asked.clear()


def test_behind_full_stretches_there_are_fewer_looks_than_stretches(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look makes the server decode as much as the read.

    What the server logs by itself between two changes is a reason to look: the changes come at
    once, with hardly any time for a checkpoint or a vacuum among them, and are many.
    """
    table.run("ALTER TABLE source SET (autovacuum_enabled = off)")
    table.run("CHECKPOINT")
    table.drain()
    looks = _looks(monkeypatch)
    table.run(
        "DO $$ BEGIN FOR i IN 300..599 LOOP "
        "INSERT INTO source VALUES (i, repeat('x', 1000), i); COMMIT; END LOOP; END $$"
    )
    stretches = _planned(table, Limit(bytes=12_000))
    assert sum(stretches) == 300
    assert len(stretches) >= 24
    assert len(looks) <= len(stretches) / 2


def test_behind_a_change_the_log_of_others_is_not_read_stretch_by_stretch(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One change is no sign of more: each empty stretch would be read and committed."""
    table.drain()
    looks = _looks(monkeypatch)
    table.run("INSERT INTO source VALUES (300, 'x', 1)")
    table.run("CREATE TABLE noise AS SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
    table.run("INSERT INTO source VALUES (301, 'x', 1)")
    stretches = _planned(table, Limit(bytes=4_000))
    assert sum(stretches) == 2
    assert len(stretches) <= 4
    assert len(looks) <= 3


def _records(session: SourceSession, table: Followed, position: Positions) -> int | None:
    table.wait_until_free()  # or nobody looks, and the bytes of the log tell
    return session.lag(position).records


def _looks(monkeypatch: pytest.MonkeyPatch) -> list[Lsn]:
    """From where the server was asked for changes."""
    looks = list[Lsn]()

    def counted(source: PostgresqlCdcSource, after: Lsn, upto: Lsn, most: int) -> CdcSeen:
        looks.append(after)
        return look(source, after, upto, most)

    monkeypatch.setattr(idle_log, "look", counted)
    return looks


def _planned(table: Followed, limit: Limit) -> list[int]:
    """The changes of each stretch up to the end of the log."""
    stretches = list[int]()
    with closing(table.source.open("followed/asked")) as session:
        at, ends = table.position(), session.end()
        while (span := session.plan(at, limit, ends)).slices:
            for batches in table.source.batches_in_order(span.slices, frozenset()):
                stretches.append(sum(batch.num_rows for batch in batches))
            at = span.upto
            table.wait_until_free()
    return stretches


def test_another_server_is_looked_at_from_the_beginning(table: Followed) -> None:
    """Where one had no changes its promoted standby may have some, at the same places."""
    table.drain()
    after = parse(table.position()["wal"])
    assert after is not None
    table.run("INSERT INTO source VALUES (300, 'x', 1)")
    end = table.log_end()
    known = idle_log.IdleLog(table.source)
    known.of("the first")
    known._idle = after.lsn, end
    assert known.first_change(after.lsn, end).first is None
    known.of("the second")
    assert known.first_change(after.lsn, end).changes == 1


@pytest.mark.parametrize("transactional", [True, False])
def test_messages_in_the_log_are_passed_over(table: Followed, transactional: bool) -> None:
    """`pg_logical_emit_message`: whatever programs of the database tell each other by it."""
    table.drain()
    emit = f"SELECT pg_logical_emit_message({transactional}, 'I', repeat('I', 5000))"
    table.run(emit)
    assert table.drain() == 0
    table.run(f"BEGIN; {emit}; INSERT INTO source VALUES (300, 'x', 1); {emit}; COMMIT; {emit}")
    table.run(f"BEGIN; INSERT INTO source VALUES (301, 'no', 1); {emit}; ROLLBACK")
    assert table.drain() == 1
    assert table.same()


def test_a_process_that_has_many_files_open_reads_too(table: Followed) -> None:
    """A lane of many flows has more than a thousand descriptors."""
    table.drain()
    table.run("INSERT INTO source VALUES (300, 'x', 1)")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    opened: list[int] = []
    try:
        while not opened or opened[-1] <= 1024:
            opened.append(os.open(os.devnull, os.O_RDONLY))
        batches = table.read(table.position())
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert tuples(batches, ["id"]) == [(300,)]


def test_a_transaction_of_many_rows_comes_in_batches(table: Followed) -> None:
    begin = table.start()
    table.run(
        "INSERT INTO source SELECT i, repeat('y', 100), 1 FROM generate_series(1001, 61000) i"
    )
    batches = table.read(begin)
    assert [batch.num_rows for batch in batches] == [20_000, 20_000, 20_000]
    assert [row[0] for row in tuples(batches, ["id"])] == list(range(1001, 61001))


def test_a_span_of_a_few_bytes_has_the_whole_transaction(table: Followed) -> None:
    table.drain()
    table.run(CHANGES)
    table.limit = Limit(records=1, bytes=1)
    table.drain()
    assert table.same()


def test_under_constant_writes_the_copy_is_right_in_the_end(table: Followed) -> None:
    """Six seconds of writers, and drains of which every second one dies."""
    stop = threading.Event()

    def write(seed: int) -> None:
        with psycopg.connect(table.dsn, autocommit=True) as connection:
            connection.execute(f'SET search_path TO "{table.schema}"'.encode())
            connection.execute("SET synchronous_commit TO " + ("off" if seed % 2 else "on"))
            connection.execute("SELECT setseed(%s)", [seed / 100])
            while not stop.is_set():
                connection.execute(
                    """
                    DO $$ DECLARE k int := 1 + (random() * 400)::int; BEGIN
                      IF random() < 0.3 THEN DELETE FROM source WHERE id = k;
                      ELSE INSERT INTO source VALUES (k, random()::text, random() * 100)
                        ON CONFLICT (id) DO UPDATE SET name = excluded.name,
                        amount = excluded.amount;
                      END IF;
                      IF random() < 0.1 THEN RAISE EXCEPTION 'rolled back'; END IF;
                    EXCEPTION WHEN raise_exception THEN NULL; END $$
                    """
                )

    table.run("INSERT INTO source SELECT i, 'row ' || i, i FROM generate_series(101, 400) i")
    table.limit = Limit(bytes=256 * 1024)
    writers = [threading.Thread(target=write, args=[seed]) for seed in range(3)]
    for writer in writers:
        writer.start()
    names = ["postgresql-cdc.snapshot", "postgresql.after-commit", "drain.passed",
             "postgresql.before-commit", "postgresql-cdc.read"]  # fmt: skip
    for name in names:
        table.killed_at(name)
        table.drain()
    stop.set()
    for writer in writers:
        writer.join()
    # Its commit waits for the disk, as it has written something: asynchronous ones lie before it.
    table.run("SELECT pg_logical_emit_message(true, 'test', 'the end')")
    table.drain()
    assert table.rows("target") == table.rows("source")


def test_a_run_goes_on_from_latest_or_from_the_beginning(table: Followed) -> None:
    table.drain(Start("latest"))
    assert table.rows() == []
    table.run("INSERT INTO source VALUES (500, 'after', 1)")
    table.drain()
    assert [row[0] for row in table.rows()] == [500]
    table.drain(Start("earliest", table="truncate"))
    assert table.same()
    with pytest.raises(PermanentError, match="cannot be read from a time"):
        table.drain(Start("timestamp", timestamp="2026-01-01T00:00:00Z", table="truncate"))


def test_parts_of_a_snapshot_are_cut_by_blocks(table: Followed) -> None:
    table.run("INSERT INTO source SELECT i, repeat('x', 500), i FROM generate_series(201, 900) i")
    table.limit = Limit(bytes=64 * 1024)
    with closing(table.source.open("followed/parts")) as session:
        span = session.plan(session.start(), table.limit)
        parts = [parse_part(piece.part) for piece in span.slices if isinstance(piece, PartSlice)]
        assert len(parts) > 4
        table.run("UPDATE source SET name = 'later'; DELETE FROM source WHERE id > 400")
        found = [row for piece in span.slices for batch in
                 table.source.batches(piece, frozenset()) for row in batch.to_pylist()]  # fmt: skip
    assert sorted(row["id"] for row in found) == [*range(1, 101), *range(201, 901)]
    assert {row["name"] for row in found} == {"x" * 500, *(f"row {n}" for n in range(1, 101))}


def test_a_checkpoint_of_the_operator_is_taken_over(table: Followed) -> None:
    """It names the commit that was stored last, which does not come again."""
    begin = table.start()
    table.run("INSERT INTO source VALUES (300, 'stored', 1)")
    table.run("INSERT INTO source VALUES (301, 'new', 1)")
    (batch,) = table.read(begin, frozenset({"lsn"}))
    (stored, _) = tuples([batch], [system_name("lsn")])
    document = {"lastAckedLSN": stored[0], "phase": "streaming", "slotName": table.schema}
    with closing(table.source.open("followed/adopt")) as session:
        adopted = session.adopt(document)
        assert session.adopt({"snapshotLSN": stored[0]}) == {
            "wal": dump(Reached(Lsn.parse(stored[0])))
        }
        with pytest.raises(PermanentError, match="first load was not finished"):
            session.adopt({**document, "phase": "snapshot"})
    assert tuples(table.read(adopted), ["id"]) == [(301,)]


def test_a_slot_that_the_operator_s_heartbeats_have_moved(
    table: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    """While its tables are idle it confirms the end of the log, and its checkpoint stays behind."""
    begin = table.start()
    table.run("INSERT INTO source VALUES (300, 'stored', 1)")
    (batch,) = table.read(begin, frozenset({"lsn"}))
    ((stored,),) = tuples([batch], [system_name("lsn")])
    checkpoint = {"postgresql-cdc": {"lastAckedLSN": stored, "phase": "streaming"}}
    table.run("CREATE TABLE noise AS SELECT 1")
    table.advanced()
    query = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
    ((confirmed,),) = table.run(query, table.schema)
    adopt_file(table.flow, Run(), json.dumps(checkpoint))
    assert table.position() == {"wal": dump(Reached(Lsn.parse(confirmed)))}
    assert f"is at {confirmed}, and the checkpoint at {stored}: " in caplog.text
    table.run("INSERT INTO source VALUES (301, 'new', 1)")
    assert table.drain() == 1
    assert [row[0] for row in table.rows()] == [301]


def test_a_checkpoint_of_the_operator_without_its_slot_replaces_nothing(table: Followed) -> None:
    table.drain()
    known = table.position()
    table.run("SELECT pg_drop_replication_slot(%s)", table.schema)
    checkpoint = {"lastAckedLSN": "0/10", "phase": "streaming"}
    with pytest.raises(PermanentError, match="is gone: it was dropped"):
        adopt_file(table.flow, Run(), json.dumps(checkpoint))
    assert table.position() == known


def test_a_table_that_the_operator_has_not_loaded_is_loaded(table: Followed) -> None:
    table.run("CREATE TABLE more (LIKE source INCLUDING ALL); INSERT INTO more VALUES (9, 'm', 1)")
    several = table.but(tables=[f"{table.schema}.source", f"{table.schema}.more"])
    lsn = json.loads(str(several.start()["wal"]))["lsn"]
    document = {"snapshotLSN": lsn, "snapshotCompletedTables": [f"{table.schema}.source"]}
    with closing(several.source.open("followed/adopt")) as session:
        adopted = session.adopt(document)
        assert session.lags("wal", adopted["wal"], session.end()["wal"])
    assert tuples(several.read(adopted), ["id"]) == []
    with closing(several.source.open("followed/adopt")) as session:
        first = session.plan(adopted, Limit())
        loaded = session.plan({"wal": str(first.slices[0].upto)}, Limit())
        rows = [b for piece in loaded.slices for b in several.source.batches(piece, frozenset())]
    assert tuples(rows, ["id"]) == [(9,)]
