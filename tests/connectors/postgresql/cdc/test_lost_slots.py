"""Slots, publications and snapshots that are lost, changed or held: what is said."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.postgresql import PostgresqlCdcSource
from dataflow_assets.connectors.postgresql.cdc import errors, started_reader
from dataflow_assets.connectors.postgresql.cdc import slot as slot_module
from dataflow_assets.connectors.postgresql.cdc.position import Lsn, Reached, dump
from dataflow_assets.connectors.postgresql.cdc.walsender import Walsender
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.pool import lent_to_source
from dataflow_assets.contracts import Limit, PartSlice
from dataflow_assets.errors import DataflowError, Outdated, PermanentError, TransientError
from dataflow_assets.runs.request import Start
from tests.connectors.postgresql.cdc.followed import KEYED, Followed, created


@pytest.mark.parametrize("begin", [Followed.plan, Followed.start])
def test_a_slot_that_is_older_than_its_publication(
    followed: Followed, begin: Callable[[Followed], object]
) -> None:
    """What it keeps was not published: a new server skips that without a word."""
    followed.make(KEYED)
    followed.options = {"snapshotMode": "never"}
    followed.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", followed.schema)
    followed.run("INSERT INTO source VALUES (1, 'a')")
    with pytest.raises(
        PermanentError,
        match=r"exists, and publication \S+ does not: .*Correct publicationName; or drop the slot",
    ):
        begin(followed)
    assert len(created(followed)) == 1
    followed.run("SELECT pg_drop_replication_slot(%s)", followed.schema)
    followed.drain()
    followed.run("INSERT INTO source VALUES (2, 'b')")
    followed.drain()
    assert followed.rows() == [(2, "b")]


def test_an_older_slot_is_taken_where_the_tables_are_loaded(followed: Followed) -> None:
    followed.make(KEYED)
    followed.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", followed.schema)
    followed.run("INSERT INTO source VALUES (1, 'a')")
    followed.drain()
    followed.run("INSERT INTO source VALUES (2, 'b')")
    followed.drain()
    assert followed.rows() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("", "raise max_slot_wal_keep_size"),
        ("wal_removed", "removed log .* raise max_slot_wal_keep_size"),
        ("idle_timeout", "nobody has read the slot .* raise idle_replication_slot_timeout"),
        ("rows_removed", "rows of the catalog .* set hot_standby_feedback = on"),
        ("wal_level_insufficient", "another wal_level .* keep wal_level = logical"),
        ("of_another_time", "the server does not read it, so changes are gone.* one moment$"),
    ],
)
def test_a_slot_that_is_lost_says_for_which_reason(
    followed: Followed, reason: str, said: str
) -> None:
    error = str(errors.slot_lost(followed.source, reason))
    assert re.search(said, error)
    assert reason in error
    assert ("max_slot_wal_keep_size" in error) == (reason in {"", "wal_removed"})


@pytest.mark.parametrize(
    ("reason", "said"),
    [("idle_timeout", "nobody has read the slot"), ("", "removed log that the flow has not read")],
)
def test_a_slot_that_is_lost_between_plan_and_read_says_so_too(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, reason: str, said: str
) -> None:
    monkeypatch.setattr(Walsender, "execute", lambda *_: [("0/1", "lost", reason)])
    with (
        closing(Walsender(followed.dsn)) as sender,
        pytest.raises(PermanentError, match=f"is lost.*{said}"),
    ):
        started_reader.begin(followed.source, sender, Lsn(1))


def test_a_slot_that_another_process_creates_is_not_lost(followed: Followed) -> None:
    """Until all who write have ended it has no place in the log."""
    followed.make(KEYED)
    make = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
    with (
        closing(psycopg.connect(followed.dsn)) as writing,
        ThreadPoolExecutor(1) as other,
        lent_to_source(followed.dsn) as link,
    ):
        writing.execute("SELECT pg_current_xact_id()")
        made = other.submit(followed.run, make, followed.schema)
        try:
            while not created(followed):
                time.sleep(0.01)
            with pytest.raises(TransientError, match="is being created by another process"):
                slot_module.find(link, followed.source)
        finally:
            writing.rollback()
        made.result()
        assert slot_module.find(link, followed.source) is not None


@pytest.mark.parametrize("changed", ["source", "all_of_it"])
def test_a_partition_whose_log_names_rows_otherwise(followed: Followed, changed: str) -> None:
    """The server announces the root's replica identity, and logs by the partition's."""
    followed.run("CREATE TABLE source (id int PRIMARY KEY, big text) PARTITION BY RANGE (id)")
    followed.run("CREATE TABLE all_of_it PARTITION OF source DEFAULT")
    followed.plan()
    followed.run(f"ALTER TABLE {changed} REPLICA IDENTITY FULL")
    with pytest.raises(PermanentError, match=r"replica identity is .* of its partition"):
        followed.plan()
    followed.run("ALTER TABLE source REPLICA IDENTITY FULL")
    followed.run("ALTER TABLE all_of_it REPLICA IDENTITY FULL")
    followed.plan()


def test_a_partition_that_comes_under_a_session_and_logs_less_than_its_root(
    followed: Followed,
) -> None:
    """A large value that its old row lacks is not null: nothing is stored without it."""
    followed.run("CREATE TABLE source (id int PRIMARY KEY, big text) PARTITION BY RANGE (id)")
    followed.run("ALTER TABLE source ALTER big SET STORAGE EXTERNAL, REPLICA IDENTITY FULL")
    begin = followed.start()
    with closing(followed.source.open("followed/late")) as session:
        followed.run("CREATE TABLE late PARTITION OF source DEFAULT")
        followed.run("ALTER TABLE late ALTER big SET STORAGE EXTERNAL")
        followed.run("INSERT INTO source SELECT 1, repeat(md5('x'), 300)")
        followed.run("UPDATE source SET id = 2; ALTER TABLE late REPLICA IDENTITY FULL")
        span = session.plan(begin, followed.limit)
    with pytest.raises(PermanentError, match=r"key of a row was changed.*value of big"):
        list(followed.source.batches(span.slices[0], frozenset()))


def test_a_slot_that_was_dropped_or_made_again(followed: Followed) -> None:
    followed.make(KEYED)
    followed.drain()
    followed.run("SELECT pg_drop_replication_slot(%s)", followed.schema)
    followed.run("INSERT INTO source VALUES (1, 'lost')")
    with pytest.raises(PermanentError, match=r"is gone: it was dropped.*--from earliest --table"):
        followed.drain()
    followed.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", followed.schema)
    with pytest.raises(PermanentError, match="has let go what lies before"):
        followed.drain()


def test_a_server_that_has_lost_the_end_of_its_log(followed: Followed) -> None:
    """Restored, or promoted while it was behind: its new log would be skipped."""
    followed.make(KEYED)
    followed.drain()
    beyond = {"wal": dump(Reached(Lsn(1 << 60)))}
    with closing(followed.source.open("followed/restored")) as session:
        for until in (None, session.end()):
            with pytest.raises(PermanentError, match=r"the log ends at .* Load the tables again"):
                session.plan(beyond, followed.limit, until)


def test_a_slot_of_another_plugin(followed: Followed) -> None:
    followed.make(KEYED)
    followed.run("SELECT pg_create_physical_replication_slot(%s)", followed.schema)
    with pytest.raises(PermanentError, match=r"its plugin is none .* Choose another slotName"):
        followed.plan()


def test_a_slot_that_somebody_else_reads(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_module, "FREE_SECONDS", 0.2)
    followed.make(KEYED)
    begin = followed.start()
    info = psycopg.conninfo.make_conninfo(followed.dsn, replication="database")
    with closing(psycopg.connect(info, autocommit=True, application_name="somebody")) as other:
        other.pgconn.exec_(
            f'START_REPLICATION SLOT "{followed.schema}" LOGICAL 0/0 '
            f"(proto_version '1', publication_names '{followed.schema}')".encode()
        )
        with pytest.raises(TransientError, match=r"read by process \d+ of the server \(somebody\)"):
            followed.plan(begin)


def test_a_table_that_is_emptied(followed: Followed) -> None:
    """Both ways out that the error names; changes before the TRUNCATE are in the same stretch."""
    followed.make(KEYED)
    followed.run("INSERT INTO source VALUES (1, 'a')")
    followed.drain()
    followed.run("INSERT INTO source VALUES (2, 'b')")
    followed.run("TRUNCATE source; INSERT INTO source VALUES (3, 'c')")
    with pytest.raises(PermanentError, match=r"emptied by TRUNCATE.*set onTruncate: skip, and whe"):
        followed.drain()
    assert followed.rows() == [(1, "a")]
    followed.but(onTruncate="skip").drain()
    assert followed.rows() == [(1, "a"), (2, "b"), (3, "c")]
    followed.run("DELETE FROM target WHERE id NOT IN (SELECT id FROM source)")
    followed.run("TRUNCATE source; INSERT INTO source VALUES (4, 'd')")
    with pytest.raises(
        PermanentError, match=r"load the tables again \(dataflow run --from earlies"
    ):
        followed.drain()
    followed.drain(Start("earliest", table="truncate"))
    assert followed.same()
    assert followed.rows() == [(4, "d")]


def test_a_snapshot_that_is_gone_where_rows_are_appended(followed: Followed) -> None:
    """Never a row twice: what is stored of it stays, and the flow stops."""
    followed.run("CREATE TABLE source (id int PRIMARY KEY, name text)")
    followed.run("CREATE TABLE target (id int, name text)")
    followed.run("INSERT INTO source SELECT i, repeat('x', 500) FROM generate_series(1, 900) i")
    followed.limit, followed.sink_options = Limit(bytes=64 * 1024), {}
    assert followed.killed_at("postgresql.after-commit")
    before = followed.rows()
    assert 0 < len(before) < 900
    with pytest.raises(Outdated, match=r"would repeat rows .* --from earliest --table truncate"):
        followed.drain()
    assert followed.rows() == before


def test_a_snapshot_that_is_gone_before_anything_is_stored(followed: Followed) -> None:
    followed.run("CREATE TABLE source (id int PRIMARY KEY, name text)")
    followed.run("CREATE TABLE target (id int, name text)")
    followed.run("INSERT INTO source SELECT i, repeat('x', 500) FROM generate_series(1, 900) i")
    followed.limit, followed.sink_options = Limit(bytes=64 * 1024), {}
    assert followed.killed_at("postgresql-cdc.snapshot")
    assert followed.drain() == 900
    assert followed.same()


def test_a_snapshot_of_the_same_name_is_another_one(followed: Followed) -> None:
    """A server that was restarted begins its names anew."""
    followed.make(KEYED)
    with closing(followed.source.open("followed/names")) as session:
        span = session.plan(session.start(), followed.limit)
        held = [piece for piece in span.slices if isinstance(piece, PartSlice)]
        assert [session.smaller(piece, followed.limit) for piece in held] == [
            (piece.part,) for piece in held
        ]
        earlier = replace(held[0], part=json.dumps({**json.loads(held[0].part), "lsn": "0/1"}))
        with pytest.raises(Outdated):
            session.smaller(earlier, followed.limit)
        assert list(session.renew(earlier, followed.limit)) == [piece.part for piece in held]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[devservers.PostgreSQL]:
    """A server with room for one slot, which keeps little log for it."""
    config = {"max_replication_slots": "1", "max_wal_senders": "2",
              "max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB",
              "max_wal_size": "32MB"}  # fmt: skip
    with devservers.PostgreSQL(tmp_path / "small", config=config) as server:
        yield server


def test_a_server_without_room_for_slots_and_one_that_gave_the_slot_up(
    small: devservers.PostgreSQL, engine: SparkSession
) -> None:
    followed = Followed(small.dsn(), "public", engine)
    followed.make(KEYED)
    with pytest.raises(PermanentError, match=r"two replication slots.* and 1 of the .*drop one"):
        followed.drain()
    assert not created(followed)
    with pytest.raises(PermanentError, match="does not exist: run SELECT pg_create_logical_repl"):
        followed.but(createSlotIfNotExists=False).plan()
    followed.options = {"snapshotMode": "never"}
    followed.drain()
    followed.run("INSERT INTO source VALUES (1, 'a')")
    info = psycopg.conninfo.make_conninfo(followed.dsn, replication="database")
    with (
        psycopg.connect(info),
        psycopg.connect(info),
        pytest.raises(TransientError, match=r"all WAL senders are in use.* SET max_wal_senders"),
    ):
        followed.plan(followed.position())
    followed.run("CREATE TABLE noise (t text)")
    for _ in range(4):
        followed.run("INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 20000)")
        followed.run("SELECT pg_switch_wal()")
        followed.run("CHECKPOINT")
    with pytest.raises(PermanentError, match=r"is lost.*Two ways out: drop the slot"):
        followed.drain()


@pytest.mark.parametrize("said", ["sorry, too many clients already", "remaining connection slots"])
def test_a_server_that_is_full_for_a_moment(followed: Followed, said: str) -> None:
    """Its code is that of too many WAL senders."""
    with (
        pytest.raises(TransientError, match=said) as caught,
        errors.explain_errors(followed.source, "reading"),
    ):
        raise PostgresqlFailure(said, "53300")
    assert "wal_senders" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "code", "advised"),
    [
        ("permission denied to use replication slots", "42501", True),
        ("permission denied to start WAL sender", "42501", True),
        ("permission denied for table replication_log", "42501", False),
        ("all replication slots are in use", "53400", True),
        ("temporary file size exceeds temp_file_limit (1kB)", "53400", False),
    ],
)
def test_advice_is_given_on_what_the_server_has_said(
    followed: Followed, said: str, code: str, advised: bool
) -> None:
    with (
        pytest.raises(DataflowError, match=re.escape(said)) as caught,
        errors.explain_errors(followed.source, "reading"),
    ):
        raise PostgresqlFailure(said, code)
    assert advised == ("REPLICATION" in str(caught.value) or "drop one" in str(caught.value))


def test_a_disk_that_is_full_says_what_to_make_room_for(followed: Followed) -> None:
    said = "could not write to data file for XID 755: No space left on device"
    with (
        pytest.raises(TransientError, match=r"slot \S+ of .*XID 755.*make room.*pg_replslot"),
        errors.explain_errors(followed.source, "planning"),
    ):
        raise PostgresqlFailure(said, "53100")


class Cramped(devservers.PostgreSQL):
    """A server that can write no file of more than 20 MB, as if its disk were full then."""

    def command(self) -> list[str]:
        return ["prlimit", "--fsize=20000000", *super().command()]


@pytest.mark.full
def test_a_disk_that_is_full_under_the_slot(tmp_path: Path, engine: SparkSession) -> None:
    """The server keeps a large transaction in a file until it has read its commit."""
    config = {"logical_decoding_work_mem": "64kB"}
    with Cramped(tmp_path / "cramped", config=config) as server:
        followed = Followed(server.dsn(), "public", engine, patience=1)
        followed.make(KEYED)
        followed.drain()
        position = followed.position()
        rows = "".join(f"{number}\tx\n" for number in range(300_000))
        with (
            psycopg.connect(server.dsn()) as connection,
            connection.cursor().copy("COPY source FROM STDIN") as copy,
        ):
            copy.write(rows)
        with pytest.raises(
            TransientError, match=r"slot public .* could not write .* No space.*make room"
        ):
            followed.drain()
        assert followed.position() == position
        server.config = {"logical_decoding_work_mem": "256MB"}  # it needs no file any more
        server.stop()
        server.start()
        followed.patience = 20
        assert followed.drain() == 300_000
        assert followed.rows() == followed.rows("source")


def test_who_writes_is_named_where_a_slot_waits(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed.make(KEYED)
    made = slot_module.make

    def impatient(link: TextLink, source: PostgresqlCdcSource) -> None:
        link.execute("SET lock_timeout = '300ms'")
        made(link, source)

    monkeypatch.setattr(slot_module, "make", impatient)
    with psycopg.connect(followed.dsn, application_name="writer") as writer:
        name = f"{followed.schema}_guest"
        writer.execute(f"CREATE ROLE {name} PASSWORD 'hunter2'".encode())
        with pytest.raises(
            DataflowError, match=r"open transactions that write: process \d+ \(writ"
        ) as caught:
            followed.plan()
        writer.rollback()
    assert f"CREATE ROLE {name} PASSWORD ..." in str(caught.value)
    assert "hunter2" not in str(caught.value)
