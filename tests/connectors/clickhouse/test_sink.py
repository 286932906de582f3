"""The ClickHouse sink on a real server: each record once, wherever a run stops."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import clickhouse_connect
import pytest

import devservers
from dataflow_assets import failpoints
from dataflow_assets.connectors.clickhouse.table import table as tables
from dataflow_assets.contracts import (
    CountsRows,
    OffsetSlice,
    PartSlice,
    Receipt,
    Rejection,
    Run,
    SinkSession,
    Span,
)
from dataflow_assets.errors import PermanentError, Stopped, TakenOver, TransientError
from tests.connectors.clickhouse.driver import (
    COLUMNS,
    SOURCE,
    TARGET,
    Place,
    chunk,
    start,
    store,
    write,
)
from tests.contract.clickhouse_drivers import Clickhouse

FIRST: list[dict[str, Any]] = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
SECOND: list[dict[str, Any]] = [{"id": 3, "name": "c"}]
ARMED = [one for one in Clickhouse.failpoints if one.startswith("clickhouse.")]


@pytest.fixture
def place(clickhouse: devservers.ClickHouse, database: str) -> Place:
    return Place(clickhouse.dsn(database))


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def armed(name: str) -> None:
        monkeypatch.setenv("DATAFLOW_FAILPOINT", f"{name}:raise")
        monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
        failpoints.arm(failpoints.from_environment())

    return armed


def read(sink_place: Place, session: SinkSession, upto: int, **options: object) -> Receipt:
    """A micro-batch of records 0 to upto of one partition, as far as the session wants them."""
    first = session.checkpoint.positions["0"]
    assert isinstance(first, int)
    span = session.begin(Span((OffsetSlice("0", first, upto),)))
    sink, ticket, piece = sink_place.sink(**options), session.ticket(), span.slices[0]
    assert isinstance(piece, OffsetSlice)
    records = [{"id": number, "name": f"n{number}"} for number in range(piece.after, piece.upto)]
    receipt = write(sink, ticket, piece, chunk(ticket, records, piece.after))
    session.finish(span, [receipt], SOURCE)
    return receipt


def test_rows_and_checkpoint(place: Place) -> None:
    place.make()
    session = store(place.sink(), FIRST, SECOND)
    assert place.rows() == [(1, "a"), (2, None), (3, "c")]
    assert session.checkpoint.positions == {"0": 3}
    assert session.checkpoint.totals.rows == 3
    stored = place.sink().peek(TARGET)
    assert stored is not None
    assert (stored.positions, stored.totals) == ({"0": 3}, session.checkpoint.totals)
    assert isinstance(session.table, CountsRows)
    assert session.table.row_count() == 3


@pytest.mark.crash
@pytest.mark.parametrize("point", ARMED)
def test_a_failure_at_every_step(place: Place, point: str, arm: Callable[[str], None]) -> None:
    place.make()
    store(place.sink(), FIRST)
    arm(point)
    with pytest.raises(TransientError, match=point):
        read(place, start(place.sink()), 9)
    failpoints.arm(None)
    session = start(place.sink())
    while session.checkpoint.positions["0"] != 9:
        read(place, session, 9)
    assert [id_ for (id_,) in place.rows("id")] == sorted([1, 2, *range(2, 9)])
    assert session.checkpoint.totals.rows == 9


@pytest.mark.crash
def test_input_that_ends_early_makes_a_shorter_chunk(place: Place) -> None:
    place.make()
    session = start(place.sink())
    span = session.begin(Span((OffsetSlice("0", 0, 5),)))
    ticket = session.ticket()
    receipt = write(place.sink(), ticket, span.slices[0], chunk(ticket, FIRST, 0))
    assert receipt.position == 2
    session = start(place.sink())
    assert session.checkpoint.positions == {"0": 2}
    read(place, session, 5)
    assert [id_ for (id_,) in place.rows("id")] == [1, 2, 2, 3, 4]


@pytest.mark.crash
@pytest.mark.parametrize("point", ["clickhouse.recorded", "clickhouse.inserted"])
def test_a_chunk_of_which_only_a_part_is_read_again_waits(
    place: Place, point: str, arm: Callable[[str], None]
) -> None:
    """When the JVM fails, the input ends as if all were well: a part would use up the token."""
    place.make()
    arm(point)
    with pytest.raises(TransientError):
        read(place, start(place.sink()), 6)
    failpoints.arm(None)
    session = start(place.sink())
    span = session.begin(Span((OffsetSlice("0", 0, 9),)))
    assert span.slices == (OffsetSlice("0", 0, 6),)
    ticket = session.ticket()
    receipt = write(place.sink(), ticket, span.slices[0], chunk(ticket, FIRST, 0))
    assert (receipt.position, receipt.totals.rows) == (0, 0)
    read(place, start(place.sink()), 9)
    assert [id_ for (id_,) in place.rows("id")] == list(range(6))


@pytest.mark.crash
def test_records_that_are_gone_since_end_their_chunk(
    place: Place, arm: Callable[[str], None]
) -> None:
    """Compaction has removed the last records of a chunk; that the whole job succeeded says so."""
    place.make()
    arm("clickhouse.recorded")
    with pytest.raises(TransientError):
        read(place, start(place.sink()), 6)
    failpoints.arm(None)
    for _ in range(2):
        session = start(place.sink())
        span = session.begin(Span((OffsetSlice("0", 0, 9),)))
        ticket = session.ticket()
        receipt = write(place.sink(), ticket, span.slices[0], chunk(ticket, FIRST, 0))
        if receipt.position == 0:
            with pytest.raises(TransientError, match="from 2 on are gone"):
                session.finish(span, [receipt], SOURCE)
    session.finish(span, [receipt], SOURCE)
    assert session.checkpoint.positions == {"0": 2}
    assert place.rows() == [(1, "a"), (2, None)]


@pytest.mark.crash
def test_an_old_driver_in_the_middle_of_a_commit(place: Place) -> None:
    place.make()
    old = start(place.sink(), run="old")
    span = old.begin(Span((OffsetSlice("0", 0, 4),)))
    ticket = old.ticket()
    new = start(place.sink(), run="new")
    read(place, new, 4)
    records = [{"id": number, "name": "x"} for number in range(4)]
    with pytest.raises(TakenOver, match="taken over by run new on host h1"):
        write(place.sink(), ticket, span.slices[0], chunk(ticket, records, 0))
    assert place.rows("id") == [(0,), (1,), (2,), (3,)]


@pytest.mark.crash
def test_views_that_would_count_twice_are_told(
    place: Place, arm: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    place.make()
    for name, window in (("forgetful", 0), ("mindful", 100)):
        place.run(
            f"create table {name} (rows UInt64) engine = SummingMergeTree order by tuple() "
            f"settings non_replicated_deduplication_window = {window}"
        )
        view = f"create materialized view {name}_view to {name}"
        place.run(f"{view} as select count() as rows from {place.table}")
    session = start(place.sink())
    told = [record.getMessage() for record in caplog.records]
    (note,) = [one for one in told if "materialized view" in one]
    assert "forgetful_view may count rows twice after a crash" in note
    arm("clickhouse.inserted")
    with pytest.raises(TransientError):
        read(place, session, 3)
    failpoints.arm(None)
    read(place, start(place.sink()), 3)
    assert place.rows("id") == [(0,), (1,), (2,)]
    assert place.rows("sum(rows)", "mindful") == [(3,)]
    assert place.rows("sum(rows)", "forgetful") == [(6,)]
    place.run(note.partition("run: ")[2])
    caplog.clear()
    start(place.sink())
    assert "materialized view" not in caplog.text


@pytest.mark.crash
def test_the_same_slice_written_twice(place: Place) -> None:
    place.make()
    session = start(place.sink())
    span = session.begin(Span((OffsetSlice("0", 0, 2),)))
    ticket = session.ticket()
    receipts = [
        write(place.sink(), ticket, span.slices[0], chunk(ticket, FIRST, 0)) for _ in range(2)
    ]
    assert [receipt.position for receipt in receipts] == [2, 2]
    session.finish(span, receipts, SOURCE)
    assert place.rows() == [(1, "a"), (2, None)]
    assert session.checkpoint.totals.rows == 2


@pytest.mark.crash
@pytest.mark.parametrize("point", ["clickhouse.recorded", "clickhouse.inserted", "clickhouse.done"])
def test_parts_of_a_bounded_read(place: Place, point: str, arm: Callable[[str], None]) -> None:
    place.make()
    parts = tuple(PartSlice(f"part-{i}", None, "end", f"range {i}") for i in range(2))

    def run(until: Callable[[], None]) -> SinkSession:
        session = start(place.sink(), {"state": "0"})
        span = session.begin(Span(parts))
        assert [piece.part for piece in span.slices if isinstance(piece, PartSlice)] == [
            "range 0",
            "range 1",
        ]
        until()
        ticket, receipts = session.ticket(), []
        for piece in span.slices:
            if not piece.empty:
                rows = [{"id": int(piece.partition[-1]) * 10 + n, "name": "x"} for n in range(3)]
                receipts.append(write(place.sink(), ticket, piece, chunk(ticket, rows, 0)))
        session.finish(span, receipts, SOURCE)
        return session

    with pytest.raises(TransientError):
        run(lambda: arm(point))
    session = run(lambda: failpoints.arm(None))
    assert place.rows("id") == [(0,), (1,), (2,), (10,), (11,), (12,)]
    assert session.checkpoint.positions == {"state": "end+end+0"}
    assert session.checkpoint.totals.rows == 6


def test_a_part_whose_end_is_in_doubt_is_not_stored(place: Place) -> None:
    place.make()
    session = start(place.sink(), {"state": "0"})
    span = session.begin(Span((PartSlice("part-0", None, "end"),)))
    ticket = session.ticket()
    receipt = write(place.sink(), ticket, span.slices[0], chunk(ticket, FIRST, 0), complete=False)
    assert receipt.position is None
    assert place.rows() == []


@pytest.mark.crash
def test_a_chunk_that_the_table_may_have_forgotten_stops_the_flow(
    place: Place, arm: Callable[[str], None]
) -> None:
    place.make(window=20)
    store(place.sink(), FIRST)
    arm("clickhouse.inserted")
    with pytest.raises(TransientError):
        read(place, start(place.sink()), 6)
    failpoints.arm(None)
    for number in range(20):
        place.run(f"insert into orders values ({100 + number}, 'somebody else')")
    session = start(place.sink())
    with pytest.raises(PermanentError) as caught:
        session.begin(Span((OffsetSlice("0", 2, 6),)))
    told = str(caught.value)
    assert "whether the records 2 to 5 of partition 0 of orders are in table" in told
    assert "of 20 that it remembers" in told
    session.restart({"0": 6}, "t1")
    assert start(place.sink()).checkpoint.positions == {"0": 6}


@pytest.mark.crash
def test_rewinding_stores_the_records_again(place: Place) -> None:
    place.make()
    session = store(place.sink(), FIRST)
    session.restart({"0": 0}, "t1")
    store(place.sink(), FIRST, session=session)
    assert [id_ for (id_,) in place.rows("id")] == [1, 1, 2, 2]
    session.restart({"0": 0}, "t1", empty=True)
    assert place.rows() == []
    store(place.sink(), FIRST, session=session)
    assert place.rows() == [(1, "a"), (2, None)]
    assert session.checkpoint.totals.rows == 6


@pytest.mark.crash
def test_a_crash_while_the_table_is_emptied(place: Place, arm: Callable[[str], None]) -> None:
    place.make()
    session = store(place.sink(), FIRST)
    arm("clickhouse.restarting")
    with pytest.raises(TransientError):
        session.restart({"0": 0}, "t1", empty=True)
    failpoints.arm(None)
    store(place.sink(), SECOND)
    assert place.rows() == [(3, "c")]


def test_forgetting_and_beginning_anew(place: Place) -> None:
    place.make()
    session = store(place.sink(), FIRST)
    session.forget()
    assert place.sink().peek(TARGET) is None
    store(place.sink(), FIRST)
    assert [id_ for (id_,) in place.rows("id")] == [1, 1, 2, 2]


PARTITIONED = "partition by intDiv(id, 10) order by id"


@pytest.mark.crash
@pytest.mark.parametrize("point", ["clickhouse.recorded", "clickhouse.inserted"])
def test_a_table_with_partitions(place: Place, point: str, arm: Callable[[str], None]) -> None:
    place.make(rest=PARTITIONED)
    arm(point)
    with pytest.raises(TransientError):
        read(place, start(place.sink()), 300)
    failpoints.arm(None)
    read(place, start(place.sink()), 300)
    assert [id_ for (id_,) in place.rows("id")] == list(range(300))


@pytest.mark.crash
def test_other_rows_of_a_chunk_in_a_table_with_partitions_stop_the_flow(
    place: Place, arm: Callable[[str], None]
) -> None:
    """The steps were changed: of the new rows some may stand already, in another partition."""
    place.make(rest=PARTITIONED)
    arm("clickhouse.recorded")
    with pytest.raises(TransientError):
        read(place, start(place.sink()), 2)
    failpoints.arm(None)
    session = start(place.sink())
    span = session.begin(Span((OffsetSlice("0", 0, 2),)))
    ticket = session.ticket()
    with pytest.raises(PermanentError, match="its records give other rows now"):
        write(place.sink(), ticket, span.slices[0], chunk(ticket, FIRST, 0))
    assert place.rows() == []


@pytest.mark.crash
def test_other_rows_of_a_chunk_in_one_block_are_the_first_ones(
    place: Place, arm: Callable[[str], None]
) -> None:
    place.make()
    arm("clickhouse.inserted")
    with pytest.raises(TransientError):
        read(place, start(place.sink()), 2)
    failpoints.arm(None)
    session = start(place.sink())
    span = session.begin(Span((OffsetSlice("0", 0, 2),)))
    ticket = session.ticket()
    write(place.sink(), ticket, span.slices[0], chunk(ticket, FIRST, 0))
    assert place.rows() == [(0, "n0"), (1, "n1")]


def test_what_the_table_refuses_is_rejected_and_the_others_arrive(place: Place) -> None:
    more = "kind Nullable(Enum8('a' = 1)), at Nullable(DateTime), constraint c check id > 0"
    place.make(f"{COLUMNS}, {more}")
    good = {"id": 1, "name": "x", "kind": "a", "at": datetime(2026, 1, 1, tzinfo=UTC)}
    late = datetime(2106, 2, 7, 6, 28, 15, tzinfo=UTC) + timedelta(seconds=1)
    bad = [{**good, "kind": "zz"}, {**good, "id": -1}, {**good, "at": late}]
    session = store(place.sink(), [good, *bad, {**good, "id": 2}])
    assert [row[0] for row in place.rows()] == [1, 2]
    found = place.rejected()
    assert [row[0] for row in found] == [1, 2, 3]
    assert [row[2] for row in found] == ["sink"] * 3
    assert found[0][3] == "column kind: zz is none of the names of Enum8('a' = 1)"
    assert "Constraint `c`" in found[1][3]
    assert found[2][3] == (
        "column at: 2106-02-07 06:28:16+00:00 lies outside 1970-01-01 00:00:00+00:00 to "
        "2106-02-07 06:28:15+00:00"
    )
    assert found[0][4] == "body 1"
    assert (session.checkpoint.totals.rows, session.checkpoint.totals.rejected) == (2, 3)
    assert place.run("select name from system.tables where name like 'dataflow_trial%'") == []


def test_a_flow_that_stops_at_a_record_has_stored_what_lies_before_it(place: Place) -> None:
    place.make(f"{COLUMNS}, constraint c check id > 0")
    records = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": -3, "name": "c"}]
    with pytest.raises(Stopped) as caught:
        store(place.sink(), records, way="fail")
    assert (caught.value.partition, caught.value.offset) == ("0", 2)
    store(place.sink(), records[:2], way="fail")
    assert place.rows("id") == [(1,), (2,)]
    place.run("alter table orders drop constraint c")
    store(place.sink(), records[2:], way="fail")
    assert place.rows("id") == [(-3,), (1,), (2,)]


def test_rejected_records_of_the_pass(place: Place) -> None:
    place.make()
    session = start(place.sink())
    span = session.begin(Span((OffsetSlice("0", 0, 4),)))
    ticket = session.ticket()
    refused = [
        Rejection(2, "decode", "no JSON", b"\xff\x00", key=b"k"),
        Rejection(3, "step", "text of its own", None, step=1, step_type="cast"),
    ]
    for _ in range(2):
        receipt = write(
            place.sink(), ticket, span.slices[0], chunk(ticket, FIRST, 0, refused, seen=4)
        )
    session.finish(span, [receipt], SOURCE)
    assert place.rejected() == [
        (2, 0, "decode", "no JSON", "/wA="),
        (3, 0, "step", "text of its own", None),
    ]
    assert session.checkpoint.totals.rejected == 2
    entries = place.sink().rejected_entries().pending(TARGET.flow, None, 10)
    assert [(one.body, one.key, one.stage) for one in entries] == [
        (b"\xff\x00", b"k", "decode"),
        (None, None, "step"),
    ]
    place.sink().rejected_entries().mark_replayed(entries[:1])
    place.sink().rejected_entries().mark_replayed(entries[:1])
    (left,) = place.sink().rejected_entries().pending(TARGET.flow, None, 10)
    assert left.id == entries[1].id


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (
            "create table orders (id Int64) engine = MergeTree order by id",
            "MODIFY SETTING non_replicated_deduplication_window = 10000",
        ),
        ("create table orders (id Int64) engine = Memory", "is of the engine Memory"),
        (
            "create table orders (id Int64, d Date materialized today()) engine = MergeTree "  # noqa: ISC004
            "partition by d order by id settings non_replicated_deduplication_window = 9",
            "partitioned by d, which is today()",
        ),
    ],
)
def test_tables_that_could_store_rows_twice_are_refused(
    place: Place, made: str, reason: str
) -> None:
    place.run(made)
    with pytest.raises(PermanentError) as caught:
        start(place.sink())
    assert reason in str(caught.value)


def test_a_table_that_was_dropped_or_made_anew(place: Place) -> None:
    place.make()
    session = start(place.sink())
    span = session.begin(Span((OffsetSlice("0", 0, 2),)))
    ticket = session.ticket()
    place.run("drop table orders")
    with pytest.raises(PermanentError, match="was dropped while the flow ran"):
        write(place.sink(), ticket, span.slices[0], chunk(ticket, FIRST, 0))
    place.make()
    with pytest.raises(TransientError, match="was replaced by another one"):
        write(place.sink(), ticket, span.slices[0], chunk(ticket, FIRST, 0))
    assert place.sink().open(TARGET, Run()).table.identity != session.table.identity


@pytest.mark.crash
def test_too_many_parts_are_waited_for(place: Place) -> None:
    place.run(
        "create table orders (id Int64, name Nullable(String)) engine = MergeTree order by id "
        "settings non_replicated_deduplication_window = 100, parts_to_throw_insert = 2, "
        "parts_to_delay_insert = 1000"
    )
    place.run("system stop merges orders")
    session = start(place.sink())
    for upto in (1, 2):
        read(place, session, upto)
    with pytest.raises(TransientError, match=r"too many parts: merges do not keep up"):
        read(place, session, 9)
    place.run("alter table orders modify setting parts_to_throw_insert = 3000")
    read(place, start(place.sink()), 9)
    assert [id_ for (id_,) in place.rows("id")] == list(range(9))


def test_gaps_are_stepped_over_and_totals_stay(place: Place) -> None:
    place.make()
    session = store(place.sink(), FIRST)
    for upto in (7, 9):
        first = session.checkpoint.positions["0"]
        assert isinstance(first, int)
        span = session.begin(Span((OffsetSlice("0", first, upto),)))
        session.finish(span, [], SOURCE)
    assert session.checkpoint.positions == {"0": 9}
    assert start(place.sink()).checkpoint.positions == {"0": 9}
    store(place.sink(), SECOND)
    assert place.rows("id") == [(1,), (2,), (3,)]


def test_a_ledger_of_many_chunks_is_pruned(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataflow_assets.connectors.clickhouse.table import checkpoint_table

    monkeypatch.setattr(checkpoint_table, "_MANY", 10)
    place.make()
    session = start(place.sink())
    for upto in range(1, 7):
        read(place, session, upto)
    before = place.run("select count() from dataflow_ledger")[0][0]
    session = start(place.sink())
    (after,) = place.run("select count(), any(kind) from dataflow_ledger")
    assert before > 10
    assert after == (1, "head")
    assert session.checkpoint.positions == {"0": 6}
    assert session.checkpoint.totals.rows == 6
    read(place, session, 8)
    assert [id_ for (id_,) in place.rows("id")] == list(range(8))


@pytest.mark.parametrize("key", ["id", "(id)", "(id, name)", "(`id`, name)"])
def test_the_sorting_key_however_it_was_declared(place: Place, key: str) -> None:
    columns = "id Int64, name String"
    place.make(columns, f"order by {key}")
    with clickhouse_connect.get_client(dsn=place.dsn) as client:
        table = tables.find(client, client.database or "", place.table)
    assert table is not None
    assert table.sorting_key == (("id", "name") if "name" in key else ("id",))


def test_parts_of_reads_long_past_are_pruned_too(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataflow_assets.connectors.clickhouse.table import checkpoint_table

    monkeypatch.setattr(checkpoint_table, "_MANY", 5)
    place.make()
    for number in range(4):
        session = start(place.sink(), {"state": "0"})
        span = session.begin(Span((PartSlice("part-0", None, f"end {number}"),)))
        ticket = session.ticket()
        rows = [{"id": number, "name": "x"}]
        receipt = write(place.sink(), ticket, span.slices[0], chunk(ticket, rows, 0))
        session.finish(span, [receipt], SOURCE)
    start(place.sink())
    assert place.run("select count(), any(kind) from dataflow_ledger") == [(1, "head")]
    assert place.rows("id") == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize(
    ("before", "after", "value", "other"),
    [
        ("Int64", "Int32", 2**40, "0"),
        ("Int32", "UInt32", -5, "4294967291"),
        ("Decimal(18, 4)", "Decimal(18, 2)", Decimal("1.2345"), "1.23"),
        ("Float64", "Int64", 1.75, "1"),
    ],
)
def test_a_column_that_gets_another_type_under_a_run_is_read_again(
    place: Place, before: str, after: str, value: object, other: str
) -> None:
    """ClickHouse would store `other` without a word."""
    place.make(f"id Int64, v {before}")
    sink = place.sink()
    session = store(sink, [{"id": 1, "v": 0}])
    place.run(f"alter table orders modify column v {after}")
    with pytest.raises(TransientError, match="was altered while the flow ran: its columns are"):
        store(sink, [{"id": 2, "v": value}], session=session)
    session.close()
    store(sink, [{"id": 3, "v": 3}])
    assert place.rows("id, toString(v)") == [(1, "0"), (3, "3")], other


def test_a_column_that_is_added_under_a_run_is_filled_from_then_on(place: Place) -> None:
    place.make("id Int64")
    sink = place.sink()
    session = store(sink, [{"id": 1}])
    place.run("alter table orders add column v Int64")
    with pytest.raises(TransientError, match="was altered while the flow ran"):
        store(sink, [{"id": 2}], session=session)
    session.close()
    store(sink, [{"id": 2, "v": 5}])
    assert place.rows() == [(1, 0), (2, 5)]
