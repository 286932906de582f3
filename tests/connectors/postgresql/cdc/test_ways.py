"""The two ways to read the log: a short stretch by a statement, others by the walsender."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from psycopg.pq import TransactionStatus
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.postgresql.cdc import peeked, started_reader
from dataflow_assets.connectors.postgresql.cdc.peeked import Peeked
from dataflow_assets.connectors.postgresql.cdc.position import Lsn, Reached, dump
from dataflow_assets.connectors.postgresql.cdc.reader import CdcReader, Row
from dataflow_assets.connectors.postgresql.cdc.started_reader import begin, begin_reader
from dataflow_assets.connectors.postgresql.cdc.walsender import Walsender
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.contracts import Limit
from dataflow_assets.errors import TransientError
from tests.connectors.postgresql.cdc.followed import Followed
from tests.connectors.postgresql.cdc.test_stream import CHANGES

COLUMNS = "id int PRIMARY KEY, name text, amount numeric(12,2)"


@pytest.fixture
def table(followed: Followed) -> Followed:
    followed.make(COLUMNS)
    followed.run("INSERT INTO source SELECT i, 'row ' || i, i FROM generate_series(1, 100) i")
    return followed


def test_both_ways_read_the_same(table: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the end of the stretch lies inside of a transaction, and of a commit record."""
    after = table.advanced()
    ends = [table.log_end()]
    for statement in CHANGES.strip().split(";\n"):
        table.run(statement)
        end = table.log_end()
        ends += [Lsn(end.value - back) for back in (60, 24, 8, 0)]
    table.run("BEGIN; INSERT INTO source VALUES (7777); ROLLBACK")
    ways = list[type[CdcReader]]()
    for most in (peeked.MOST_BYTES, -1):
        monkeypatch.setattr(peeked, "MOST_BYTES", most)
        with closing(begin_reader(table.source, after, table.log_end())) as found:
            ways.append(type(found))
    assert ways == [Peeked, Walsender]
    for end in [*ends, table.log_end()]:
        messages = []
        for sender in (Peeked(table.dsn, end), Walsender(table.dsn)):
            with closing(sender):
                begin(table.source, sender, after)
                messages.append([bytes(data[25:]) for _, data in sender.messages(end)])
            table.wait_until_free()
        assert messages[0] == messages[1]
    assert len(messages[0]) > 110


def test_a_stretch_that_is_not_the_slot_s_next_one(table: Followed) -> None:
    """The statement begins where the slot is, so it would read what lies before as well."""
    table.advanced()
    table.run(CHANGES)
    later = table.log_end()
    table.run("UPDATE source SET name = 'later' WHERE id = 1")
    with closing(begin_reader(table.source, later, table.log_end())) as found:
        assert isinstance(found, Walsender)
    table.wait_until_free()
    (row,) = table.bodies({"wal": dump(Reached(later))})
    assert b'"later"' in row


def test_a_slot_that_went_back_is_not_read_from_there(table: Followed) -> None:
    """A server that crashed, or was promoted, may have an older place of the slot."""
    table.advanced()
    table.run(CHANGES)
    later = table.log_end()
    with (
        closing(Peeked(table.dsn, table.log_end())) as sender,
        pytest.raises(TransientError, match=f"was moved to .* while changes behind {later}"),
    ):
        begin(table.source, sender, later)


def test_a_stretch_may_last_longer_than_other_transactions(table: Followed) -> None:
    """A role may have a limit, and a stretch lasts as long as its sink takes."""
    mark = "&" if "?" in table.dsn else "?"
    limited = f"{table.dsn}{mark}options=-c%20transaction_timeout%3D1s"
    for reader in (Peeked(limited, table.log_end()), Walsender(limited)):
        with closing(reader):
            assert reader.execute("SHOW transaction_timeout") == [("0",)]


def test_a_server_that_keeps_no_large_temporary_files(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends the changes instead."""
    monkeypatch.setattr(peeked, "_READY", peeked._READY.replace("64MB", "64kB"))
    after = table.advanced()
    table.run("INSERT INTO source SELECT i, repeat('x', 100), i FROM generate_series(1000, 9000) i")
    separator = "&" if "?" in table.dsn else "?"
    table.dsn += f"{separator}options=-c%20temp_file_limit%3D64kB"
    with closing(begin_reader(table.source, after, end := table.log_end())) as found:
        assert isinstance(found, Walsender)
        assert sum(kind == ord("I") for kind, _ in found.messages(end)) == 8_001


def test_a_slot_that_is_moved_while_it_is_read(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can say what was read: the next attempt looks where the flow is."""
    after = table.advanced()
    table.run(CHANGES)
    end, start = table.log_end(), Peeked.start

    def started(self: Peeked, slot: str, publication: str, after: Lsn) -> None:
        table.run("SELECT pg_replication_slot_advance(%s, %s)", table.schema, str(end))
        start(self, slot, publication, after)

    monkeypatch.setattr(Peeked, "start", started)
    with pytest.raises(TransientError, match="was moved to"):
        begin_reader(table.source, after, end)


def test_a_server_whose_log_ends_earlier(table: Followed) -> None:
    """The statement would end there, as if there were nothing more."""
    after = table.advanced()
    far = Lsn(table.log_end().value + 1024**3)
    with (
        closing(Peeked(table.dsn, far)) as sender,
        pytest.raises(PostgresqlFailure, match="the log of this server ends before"),
    ):
        begin(table.source, sender, after)


def test_a_slot_that_becomes_free(table: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again on the same connection."""
    after = table.advanced()
    table.run(CHANGES)
    end = table.log_end()
    monkeypatch.setattr(started_reader, "_STEP", 0.01)
    with closing(Walsender(table.dsn)) as other, closing(Peeked(table.dsn, end)) as sender:
        begin(table.source, other, after)
        with pytest.raises(PostgresqlFailure, match="is active"):
            begin(table.source, sender, after, patience=0.05)
        other.close()
        begin(table.source, sender, after, patience=10)
        assert sum(kind == ord("I") for kind, _ in sender.messages(end)) == 40


def test_a_pooler_that_gives_each_transaction_another_session(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another flow has set in that session is neither its slot nor the end of this stretch."""
    after = table.advanced()
    table.run(CHANGES)
    end, execute = table.log_end(), Peeked.execute

    def executed(self: Peeked, query: str, *parameters: str) -> list[Row]:
        found = execute(self, query, *parameters)
        if self._libpq.transaction_status == TransactionStatus.IDLE:
            execute(self, "SELECT set_config('dataflow.upto', $1, false)", str(after))
        return found

    monkeypatch.setattr(Peeked, "execute", executed)
    with closing(Peeked(table.dsn, end)) as sender:
        with pytest.raises(PostgresqlFailure, match="does not exist"):
            sender.start(f"{table.schema}_none", table.schema, after)
        assert sender._libpq.transaction_status == TransactionStatus.IDLE
        begin(table.source, sender, after)
        assert sum(kind == ord("I") for kind, _ in sender.messages(end)) == 40
        assert sender._libpq.transaction_status == TransactionStatus.IDLE
        assert sender.execute("SHOW dataflow.upto") == [(str(after),)]


def test_the_server_counts_all_reads_as_a_few_statements(
    tmp_path: Path, engine: SparkSession
) -> None:
    """`pg_stat_statements` keeps 5,000 of them, and what a flow reads would push all others out."""
    config = {"shared_preload_libraries": "pg_stat_statements", "compute_query_id": "on"}
    with devservers.PostgreSQL(tmp_path / "counting", config=config) as server:
        flow = Followed(server.dsn(), "public", engine, limit=Limit(bytes=16 * 1024))
        flow.run("CREATE EXTENSION pg_stat_statements")
        flow.make(COLUMNS)
        flow.run("INSERT INTO source SELECT i, repeat('x', 90), i FROM generate_series(1, 900) i")
        assert len(flow.plan().slices) > 3
        counted, read = list[int](), "query ~ 'peek_binary|ctid|confirmed_flush|set_config'"
        for number in range(5):
            flow.run(f"UPDATE source SET name = 'changed' WHERE id = {number}")
            flow.drain()
            found = flow.run(f"SELECT query FROM pg_stat_statements WHERE {read}")
            counted.append(len(found))
        assert flow.rows() == flow.rows("source")
    assert sum("peek_binary" in query for (query,) in found) == 1
    assert sum("ctid" in query for (query,) in found) == 2
    assert counted[1:] == [counted[1]] * 4
