"""Stretches of one span: read by one reader, ahead of what is stored, each stored by itself."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.connectors.postgresql.cdc import peeked, read, read_ahead, slot
from dataflow_assets.connectors.postgresql.cdc.peeked import Peeked
from dataflow_assets.connectors.postgresql.cdc.planning import stretches
from dataflow_assets.connectors.postgresql.cdc.position import Lsn, StreamPart, dump_part
from dataflow_assets.connectors.postgresql.cdc.read import CdcStream
from dataflow_assets.connectors.postgresql.cdc.read_ahead import ReadAhead
from dataflow_assets.connectors.postgresql.cdc.reader import CdcReader, Row
from dataflow_assets.connectors.postgresql.cdc.started_reader import begin, begin_reader
from dataflow_assets.connectors.postgresql.cdc.transactions import Transactions
from dataflow_assets.connectors.postgresql.cdc.walsender import Walsender
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.contracts import PARTS, Limit, PartSlice, Span, system_name
from dataflow_assets.errors import TransientError
from tests.connectors.postgresql.cdc.followed import Followed
from tests.connectors.postgresql.cdc.test_stream import CHANGES

_LOWER = Limit(bytes=50_000)
PLACE = re.compile("^([0-9A-F]+)/([0-9A-F]+)$")
COLUMNS = "id int PRIMARY KEY, name text, amount numeric(12,2)"


@pytest.fixture
def table(followed: Followed) -> Followed:
    followed.make(COLUMNS)
    followed.run("INSERT INTO source SELECT i, 'row ' || i, i FROM generate_series(1, 100) i")
    return followed


def _confirmed(table: Followed) -> Lsn:
    query = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
    return Lsn.parse(table.run(query, table.schema)[0][0])


def _many(table: Followed, first: int, last: int) -> None:
    """Transactions of about a thousand bytes."""
    for key in range(first, last):
        table.run("INSERT INTO source SELECT %s, repeat('x', 1000), i FROM (VALUES (1)) v(i)", key)


def _small(size: int) -> Limit:
    """Stretches of so many bytes, in a flow that allows as much as others."""
    return Limit(bytes=size, declared=Limit())


def planned(table: Followed, after: Any, limit: Limit) -> Span:
    with closing(table.source.open("followed/parts")) as session:
        found = session.plan(after, limit)
        while len(found.slices) < PARTS:  # the first spans find out how dense the changes are
            assert not found.empty
            found = session.plan(found.upto, limit)
        return found


def _in_order(table: Followed, bounds: list[Lsn]) -> list[list[dict[str, Any]]]:
    """The rows of stretches between these places, read by one reader."""
    parts = [StreamPart(str(low), str(high)) for low, high in pairwise(bounds)]
    pieces = [PartSlice(f"part-{n}", None, "", dump_part(part)) for n, part in enumerate(parts)]
    found = []
    for batches in table.source.batches_in_order(pieces, frozenset({"lsn", "operation"})):
        rows = [row for batch in batches for row in batch.to_pylist()]
        found.append([{k: v for k, v in row.items() if v is not None} for row in rows])
    return found


@pytest.mark.parametrize("way", [Peeked, Walsender])
def test_one_reader_gives_each_transaction_to_its_stretch(
    table: Followed, monkeypatch: pytest.MonkeyPatch, way: type[CdcReader]
) -> None:
    """Wherever the bounds are, and where columns are added between two of them."""
    monkeypatch.setattr(peeked, "MOST_BYTES", 1 << 40 if way is Peeked else -1)
    monkeypatch.setattr(read_ahead, "_TOGETHER", 500)
    after = table.advanced()
    table.run(CHANGES)
    table.run("ALTER TABLE source ADD COLUMN more int DEFAULT 7")
    table.run("INSERT INTO source SELECT i, 'later', i, i FROM generate_series(500, 700) i")
    _many(table, 1000, 1010)
    end = table.log_end()
    with closing(begin_reader(table.source, after, end)) as reader:
        assert type(reader) is way
    table.wait_until_free()
    ((*whole,),) = _in_order(table, [after, end])
    table.wait_until_free()
    assert len(whole) == 40 + 46 + 20 + 4 + 201 + 10
    for pieces in (2, 5, 41):
        step = (end.value - after.value) // pieces + 1
        bounds = [after, *(Lsn(n) for n in range(after.value + step, end.value, step)), end]
        found = _in_order(table, bounds)
        table.wait_until_free()
        assert [row for part in found for row in part] == whole
        for part, (low, high) in zip(found, pairwise(bounds), strict=True):
            commits = {
                Lsn.parse(row[system_name("lsn")]).value
                for row in part
                if system_name("lsn") in row
            }
            assert all(low.value <= commit < high.value for commit in commits)


@pytest.mark.crash
@pytest.mark.parametrize(
    ("failpoint", "nth", "stored"),
    [
        ("postgresql.before-commit", 1, 0),
        ("postgresql.after-commit", 1, 1),
        ("postgresql.before-commit", 3, 2),
        ("postgresql.after-commit", PARTS, PARTS),
    ],
)
def test_a_kill_between_stretches(
    table: Followed, monkeypatch: pytest.MonkeyPatch, failpoint: str, nth: int, stored: int
) -> None:
    """Each change once and in order, in a target that every change is appended to.

    While the reader is ahead of the sink, nothing is confirmed to the slot.
    """
    monkeypatch.setattr(peeked, "MOST_BYTES", -1)
    table.options = {"snapshotMode": "never", "envelopeFormat": "debezium"}
    table.sink_options = {}
    table.run("CREATE TABLE target_log (n bigserial, payload jsonb)")
    table.run("DROP TABLE target; ALTER TABLE target_log RENAME TO target")
    begin, limit = table.start(), _small(12_000)
    _many(table, 1000, 1120)
    expected = [json.loads(body)["payload"] for body in table.bodies(begin)]
    assert len(expected) == 120
    table.limit = limit
    before = _until_parts(table, begin)
    slot_was = _confirmed(table)
    rows_were = len(table.rows())
    assert table.killed_at(failpoint, nth)
    done = [row[1] for row in table.rows()]
    assert done == expected[: len(done)]
    assert (len(done) > rows_were) == (stored > 0)
    assert len(done) < len(expected)
    assert slot_was.value <= _confirmed(table).value <= before.value
    table.drain()
    assert [row[1] for row in table.rows()] == expected
    assert table.drain() == 0


class Padded(Peeked):
    """As of a server that writes places of its log with zeros in front."""

    def execute(self, query: str, *parameters: str) -> list[Row]:
        rows = super().execute(query, *parameters)
        return [tuple(value and PLACE.sub(r"0\1/0\2", value) for value in row) for row in rows]


def test_places_of_the_log_are_numbers_and_no_texts(table: Followed) -> None:
    after = table.advanced()
    _many(table, 1000, 1003)
    end = table.log_end()
    with closing(Padded(table.dsn, end)) as reader:
        begin(table.source, reader, after)
        assert sum(kind == ord("I") for kind, _ in reader.messages(end)) == 3


@pytest.mark.parametrize("way", [Peeked, Walsender])
def test_a_connection_that_has_ended_is_a_failure(table: Followed, way: type[CdcReader]) -> None:
    """Also where libpq has no answer at all: a task would die of its own error."""
    after = table.advanced()
    end = table.log_end()
    with closing(Peeked(table.dsn, end) if way is Peeked else Walsender(table.dsn)) as reader:
        ((pid,),) = reader.execute("SELECT pg_backend_pid()")
        table.run("SELECT pg_terminate_backend(%s, 5000)", pid)
        for _ in range(2):
            with pytest.raises(PostgresqlFailure):
                reader.start(table.schema, table.schema, after)


def _until_parts(table: Followed, begin: Any) -> Lsn:
    """Where the first span is that has several stretches."""
    span = planned(table, begin, table.limit)
    found = StreamPart(**json.loads(span.slices[0].part))  # type: ignore[union-attr]
    return Lsn.parse(found.after)


def test_stretches_of_the_log_are_read_in_order_and_parts_of_a_load_are_not(
    table: Followed,
) -> None:
    """A slot has one reader, and appended rows have the order of commits."""
    source = table.source
    loaded = table.plan()
    table.drain()
    _many(table, 1000, 1100)
    span = planned(table, table.position(), _small(8_000))
    assert source.reads_in_order(span, upserts=False)
    assert not source.reads_in_order(loaded, upserts=True)


def test_a_lower_limit_holds_for_all_stretches_together(table: Followed) -> None:
    """As many of them as it has room for: a MERGE into Trino takes all that a micro-batch has."""
    table.drain()
    _many(table, 1000, 1150)
    for limit, most in ((_LOWER, 1), (Limit(200, 25_000, declared=_LOWER), 2)):
        with closing(table.source.open("followed/lower")) as session:
            found, counts = session.plan(table.position(), limit), set[int]()
            while not found.empty:
                counts.add(len(found.slices))
                found = session.plan(found.upto, limit)
        assert max(counts) == most, counts


def test_how_many_stretches_a_limit_has_room_for() -> None:
    default = Limit()
    assert stretches(default) == PARTS
    assert stretches(Limit(2 * default.records, 2 * default.bytes)) == PARTS
    assert stretches(Limit(100, 1_000, declared=default)) == PARTS
    assert stretches(Limit(bytes=default.bytes - 1)) == 1
    assert stretches(Limit(records=default.records - 1)) == 1
    assert stretches(Limit(100, 1_000, declared=Limit(250, default.bytes))) == 2
    assert stretches(Limit(100, 1_000, declared=Limit(bytes=99_000))) == PARTS


def test_messages_are_read_before_they_are_asked_for(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than the bound, and then the rest."""
    monkeypatch.setattr(read_ahead, "_TOGETHER", 2_000)
    after = table.advanced()
    _many(table, 1000, 1100)
    with closing(_ahead(table, after)) as ahead:
        _wait(lambda: not _threads())
        assert sum(kind == ord("I") for kind, _ in ahead.messages()) == 100
    table.wait_until_free()
    monkeypatch.setattr(read_ahead, "MOST_BYTES", 10_000)
    with closing(_ahead(table, after)) as ahead:
        _wait(lambda: ahead._bytes >= 10_000)
        time.sleep(0.2)
        assert ahead._bytes < 10_000 + 2 * 2_000
        assert _threads()
        assert sum(kind == ord("I") for kind, _ in ahead.messages()) == 100


def test_a_reader_that_is_ended_lets_go_of_the_slot(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it waits for room, or for a server that has nothing to send."""
    monkeypatch.setattr(read_ahead, "_TOGETHER", 1_000)
    monkeypatch.setattr(slot, "_late", lambda _deadline: False)  # nobody else ends it
    after = table.advanced()
    _many(table, 1000, 1100)
    for most, upto in ((2_000, table.log_end()), (1 << 30, Lsn(table.log_end().value + (1 << 30)))):
        monkeypatch.setattr(read_ahead, "MOST_BYTES", most)
        ahead = _ahead(table, after, upto)
        assert next(ahead.messages())[0] == ord("B")
        ahead.close()
        ahead.close()
        table.wait_until_free()
        assert not _threads()


def test_an_error_comes_behind_what_was_read_before(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "_TOGETHER", 1_000)
    after = table.advanced()
    _many(table, 1000, 1020)
    far = Lsn(table.log_end().value + (1 << 30))
    with closing(_ahead(table, after, far)) as ahead:
        found = ahead.messages()
        assert next(found)[0] == ord("B")
        table.run(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            "WHERE slot_name = %s",
            table.schema,
        )
        with pytest.raises(PostgresqlFailure):
            for _ in found:
                pass


def test_the_reader_ends_where_a_sink_fails(table: Followed) -> None:
    """What is read ahead is dropped with it: the slot is free for the next attempt."""
    table.drain()
    _many(table, 1000, 1100)
    pieces = planned(table, table.position(), _small(8_000)).slices
    each = table.source.batches_in_order(pieces, frozenset())
    first = next(each)
    assert isinstance(next(first), pa.RecordBatch)
    each.close()  # type: ignore[attr-defined]
    table.wait_until_free()
    assert not _threads()


def test_what_waits_is_counted_with_what_python_needs(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small messages take more memory than they have bytes."""
    after = table.advanced()
    table.run("INSERT INTO source SELECT i, NULL, NULL FROM generate_series(1000, 3000) i")
    with closing(_ahead(table, after)) as ahead:
        _wait(lambda: not _threads())
        waiting = [message for found, _ in ahead._waiting for message in found]
        kept = sum(sys.getsizeof(one) + sys.getsizeof(one[1]) + 8 for one in waiting)
        assert len(waiting) > 2_000
        assert kept <= ahead._bytes <= 1.5 * kept
        assert sum(1 for _ in ahead.messages()) == len(waiting)
        assert ahead._bytes == 0


def test_the_server_stops_as_soon_as_the_thread_has_everything(table: Followed) -> None:
    """It would decode the log of others, and hold the slot, for as long as a sink stores."""
    after = table.advanced()
    _many(table, 1000, 1020)
    end = table.log_end()
    table.run("CREATE TABLE others (id int, t text)")
    table.run("INSERT INTO others SELECT i, repeat('x', 500) FROM generate_series(1, 20000) i")
    with closing(_ahead(table, after, end)) as ahead:
        _wait(lambda: not _is_read(table))
        assert sum(kind == ord("I") for kind, _ in ahead.messages()) == 20


def test_a_reader_that_was_closed_does_not_look_complete(table: Followed) -> None:
    after = table.advanced()
    _many(table, 1000, 1020)
    ahead = _ahead(table, after)
    _wait(lambda: not _threads())
    ahead.close()
    with pytest.raises(TransientError, match="was closed before"):
        list(ahead.messages())


def test_without_a_thread_nothing_holds_the_slot(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peeked, "MOST_BYTES", -1)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    after = table.advanced()
    _many(table, 1000, 1020)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="new thread") as raised:
        Transactions(table.source, after, table.log_end(), ahead=True)
    _wait(lambda: not _is_read(table))
    assert raised.traceback  # whose frames would keep the reader


def test_a_stretch_that_was_not_read_to_its_end_is_not_followed_by_another(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rest would be rows of the next stretch."""
    monkeypatch.setattr(read, "BATCH_ROWS", 5)
    after = table.advanced()
    _many(table, 1000, 1020)
    middle = table.log_end()
    _many(table, 1020, 1040)
    parts = [StreamPart(str(after), str(middle)), StreamPart(str(middle), str(table.log_end()))]
    with closing(CdcStream(table.source, frozenset(), parts)) as stream:
        first = stream.batches(parts[0])
        assert next(first).num_rows == 5
        with pytest.raises(TransientError, match="was not read to its end"):
            next(stream.batches(parts[1]))


def _ahead(table: Followed, after: Lsn, upto: Lsn | None = None) -> ReadAhead:
    reader = Walsender(table.dsn)
    begin(table.source, reader, after)
    return ReadAhead(reader, upto or table.log_end())


def _is_read(table: Followed) -> bool:
    query = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
    return bool(table.run(query, table.schema)[0][0])


def _threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "dataflow-read-ahead"]


def _wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not until():
        assert time.monotonic() < end
        time.sleep(0.01)
