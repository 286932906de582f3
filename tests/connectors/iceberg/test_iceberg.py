"""The Iceberg sink on a real REST catalog: rows, types and checkpoint are one commit."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

from dataflow_assets.contracts import (
    DELETE,
    INSERT,
    OFFSET,
    OP,
    Chunk,
    N,
    Note,
    OffsetSlice,
    PartSlice,
    Receipt,
    Rejection,
    Run,
    Sent,
    Span,
    Totals,
)
from dataflow_assets.errors import PermanentError, TakenOver, TransientError
from dataflow_assets.failpoints import Failpoint, arm
from tests.connectors.iceberg.driver import (
    SAMPLE,
    SOURCE,
    TARGET,
    MakeSink,
    expected,
    ids,
    opened,
    pump,
    rows,
    snapshots,
    span_of,
    stage,
    table_rows,
    write,
)


def test_appends_and_moves_the_checkpoint(make: MakeSink, catalog: Catalog, namespace: str) -> None:
    sink = make()
    session = opened(sink)
    pump(sink, session, 0, 10)
    pump(sink, session, 10, 5)
    assert ids(catalog, namespace) == expected(15)
    stored = sink.peek(TARGET)
    assert stored == session.checkpoint
    assert stored is not None
    assert stored.positions == {"p0": 15, "p1": 15}
    assert stored.totals == Totals(30, 0, 300)
    assert (stored.source, stored.manifest) == ("topic-1", "hash-1")
    assert stored.target == session.table.identity


def test_files_and_checkpoint_are_one_commit(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    before = snapshots(catalog, namespace)
    log = len(catalog.load_table((namespace, "orders")).metadata.metadata_log)
    pump(sink, session, 0, 10)
    table = catalog.load_table((namespace, "orders"))
    assert snapshots(catalog, namespace) == before + 1
    assert len(table.metadata.metadata_log) == log + 1


def test_a_second_session_continues(make: MakeSink, catalog: Catalog, namespace: str) -> None:
    sink = make()
    pump(sink, opened(sink), 0, 10)
    session = opened(sink)
    assert session.checkpoint.positions == {"p0": 10, "p1": 10}
    assert session.checkpoint.epoch == 2
    pump(sink, session, 10, 10)
    assert ids(catalog, namespace) == expected(20)


def test_replay_of_a_span_adds_nothing(make: MakeSink, catalog: Catalog, namespace: str) -> None:
    sink = make()
    session = opened(sink)
    span = session.begin(span_of(0, 10))
    receipts = stage(sink, session, span)
    first = session.finish(span, receipts, SOURCE)
    count = snapshots(catalog, namespace)
    assert session.finish(span, receipts, SOURCE) == first
    again = session.finish(span, stage(sink, session, span), SOURCE)
    assert again == first
    assert snapshots(catalog, namespace) == count
    assert ids(catalog, namespace) == expected(10)


def test_a_span_that_begins_lower_adds_only_what_is_new(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    pump(sink, session, 0, 10)
    pump(sink, session, 0, 25)
    assert ids(catalog, namespace) == expected(25)
    assert session.checkpoint.totals.rows == 50


def test_a_span_beyond_the_checkpoint_is_refused(make: MakeSink) -> None:
    session = opened(make())
    with pytest.raises(PermanentError, match="p0 is at 0, but the micro-batch was planned from 7"):
        session.begin(span_of(7, 10))


def test_takeover_fences_the_older_session(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    older = opened(sink)
    span = older.begin(span_of(0, 10))
    receipts = stage(sink, older, span)
    newer = opened(sink)
    paths = [json.loads(text)["path"] for receipt in receipts for text in receipt.staged]
    io = catalog.load_table((namespace, "orders")).io
    assert all(io.new_input(path).exists() for path in paths)
    with pytest.raises(TakenOver, match="was taken over by run"):
        older.finish(span, receipts, SOURCE)
    assert not any(io.new_input(path).exists() for path in paths)
    with pytest.raises(TakenOver):
        older.begin(span)
    pump(sink, newer, 0, 10)
    assert ids(catalog, namespace) == expected(10)


def test_start_positions_survive_without_a_table(make: MakeSink) -> None:
    sink = make()
    first = sink.open(TARGET, Run())
    assert first.table.identity is None
    assert first.table.schema() is None
    first.restart({"p0": 7}, "topic-1")
    stored = sink.peek(TARGET)
    assert stored is not None
    assert stored.positions == {"p0": 7}
    second = sink.open(TARGET, Run())
    assert second.checkpoint.positions == {"p0": 7}
    with pytest.raises(TakenOver):
        first.table.create(SAMPLE)
    second.table.create(SAMPLE)
    assert second.checkpoint.positions == {"p0": 7}
    assert sink.open(TARGET, Run()).checkpoint.positions == {"p0": 7}


def test_spans_without_rows_store_positions_but_no_snapshot(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    count = snapshots(catalog, namespace)
    for first in range(0, 50, 10):
        span = session.begin(span_of(first, 10))
        session.finish(span, [], SOURCE)
    assert snapshots(catalog, namespace) == count
    stored = sink.peek(TARGET)
    assert stored is not None
    assert stored.positions == {"p0": 50, "p1": 50}


def test_parts_are_recorded_and_repeated_with_the_same_borders(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = sink.open(TARGET, Run())
    session.restart({}, "table-1")
    session.table.create(SAMPLE)
    parts = Span((PartSlice("a", None, "a:done", "0-9"), PartSlice("b", None, "b:done", "10-19")))
    assert session.begin(parts) == parts
    after_crash = sink.open(TARGET, Run())
    other = Span((PartSlice("c", None, "c:done", "0-19"),))
    assert after_crash.begin(other) == parts
    receipts = [write(sink, after_crash, parts.slices[0], rows(0, 10))]
    with pytest.raises(TransientError, match="part b was not read"):
        after_crash.finish(parts, receipts, SOURCE)
    receipts.append(write(sink, after_crash, parts.slices[1], rows(10, 10)))
    done = after_crash.finish(parts, receipts, SOURCE)
    assert done.positions == {"a": "a:done", "b": "b:done"}
    assert after_crash.finish(parts, receipts, SOURCE) == done
    assert after_crash.begin(other) == other
    assert ids(catalog, namespace) == list(range(20))


def test_an_incomplete_part_stages_nothing(make: MakeSink) -> None:
    sink = make()
    session = opened(sink)
    piece = PartSlice("a", None, "done")
    writer = sink.writer(session.ticket(), piece)
    writer.write(Chunk(rows(0, 10), [], 10, 100))
    assert writer.close(complete=False) == Receipt(TARGET.branch, "a", None, Totals())
    writer.abort()


def test_rejected_records_go_to_a_table_of_their_own(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    span = session.begin(Span((OffsetSlice("p0", 0, 10),)))
    refused = [Rejection(3, "decode", "not JSON", b"{\xff", key=b"k")]
    receipt = write(sink, session, span.slices[0], rows(0, 3), refused)
    session.finish(span, [receipt], SOURCE)
    [row] = table_rows(catalog, namespace, "orders_rejected")
    assert row["id"] == "default/orders/iceberg:orders/orders/p0/3/0/decode"
    assert (row["body"], row["body_encoding"], row["reason"]) == ("e/8=", "base64", "not JSON")
    assert (row["key"], row["key_encoding"]) == ("k", "utf-8")
    assert (row["source"], row["partition"], row["offset"]) == ("orders", "p0", 3)
    assert session.checkpoint.totals == Totals(3, 1, 30)


def test_rejected_records_of_a_crash_are_not_written_again(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    span = session.begin(Span((OffsetSlice("p0", 0, 10),)))
    refused = [Rejection(3, "decode", "not JSON", b"{")]
    receipt = write(sink, session, span.slices[0], rows(0, 3), refused)
    arm(Failpoint("iceberg.rejected-committed", "raise", 1, 0, "", uuid.uuid4().hex))
    with pytest.raises(TransientError, match="failpoint"):
        session.finish(span, [receipt], SOURCE)
    arm(None)
    after_crash = opened(sink)
    longer = after_crash.begin(Span((OffsetSlice("p0", 0, 20),)))
    refused += [Rejection(offset, "decode", "not JSON", b"[") for offset in (2, 15)]
    receipt = write(sink, after_crash, longer.slices[0], rows(0, 3), refused)
    after_crash.finish(longer, [receipt], SOURCE)
    found = table_rows(catalog, namespace, "orders_rejected")
    assert sorted(row["offset"] for row in found) == [2, 3, 15]
    assert after_crash.checkpoint.totals.rejected == 3


def test_deletes_and_values_that_do_not_fit_are_rejected(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make(columns={"id": "long not null", "u": "uuid"})
    session = opened(sink, sample=pa.schema([]))
    span = session.begin(Span((OffsetSlice("p0", 0, 10),)))
    good = "12345678-1234-5678-1234-567812345678"
    batch = pa.RecordBatch.from_pydict(
        {
            "id": pa.array([1, 2, 3, None, 5], pa.int64()),
            "u": [good, "no uuid", good, good, None],
            OFFSET: pa.array(range(5), pa.int64()),
            N: pa.array([0] * 5, pa.int32()),
            OP: pa.array([INSERT, INSERT, DELETE, INSERT, INSERT], pa.int8()),
        }
    )
    sent = {1: Sent(b"one"), 2: Sent(b"two"), 3: Sent(b"three")}
    receipt = write(sink, session, span.slices[0], batch, sent=sent)
    session.finish(span, [receipt], SOURCE)
    assert ids(catalog, namespace) == [1, 5]
    found = {r["offset"]: r for r in table_rows(catalog, namespace, "orders_rejected")}
    assert {offset: Sent(row["body"].encode()) for offset, row in found.items()} == sent
    assert "column u" in found[1]["reason"]
    assert "append" in found[2]["reason"]
    assert "column id is required" in found[3]["reason"]


def test_types_come_from_the_sample_and_the_manifest(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sample = pa.schema(
        [
            ("flag", pa.bool_()),
            ("count", pa.int64()),
            ("price", pa.float64()),
            ("nothing", pa.null()),
            ("mixed", pa.json_()),
            ("customer", pa.struct([("id", pa.int64()), ("extra", pa.json_())])),
            ("lines", pa.list_(pa.struct([("sku", pa.string()), ("n", pa.int64())]))),
        ]
    )
    sink = make(columns={"price": "decimal(10,2)", "at": "timestamptz", "day": "date"})
    session = opened(sink, sample=sample)
    schema = session.table.schema()
    assert schema is not None
    assert schema.field("mixed").metadata == {Note.KIND: b"json"}
    assert schema.field("customer").type.field("extra").metadata == {Note.KIND: b"json"}
    assert schema.field("price").type == pa.decimal128(10, 2)
    assert schema.field("nothing").type == pa.string()
    row = {
        "flag": True,
        "count": 2**62,
        "price": Decimal("1.10"),
        "nothing": None,
        "mixed": "[1]",
        "customer": {"id": 1, "extra": "{}"},
        "lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": None}],
        "at": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "day": date(2026, 1, 2),
    }
    batch = pa.RecordBatch.from_pylist([row], schema)
    batch = batch.append_column(OFFSET, pa.array([0], pa.int64()))
    span = session.begin(Span((OffsetSlice("p0", 0, 1),)))
    receipt = write(sink, session, span.slices[0], batch)
    session.finish(span, [receipt], SOURCE)
    assert table_rows(catalog, namespace) == [row]
    table = catalog.load_table((namespace, "orders"))
    [path] = table.inspect.files().column("file_path").to_pylist()
    with table.io.new_input(path).open() as file:
        leaves = pq.ParquetFile(file).schema_arrow.field("lines").type.value_type
    assert {f.metadata[b"PARQUET:field_id"] for f in leaves} == {
        str(table.schema().find_field(f"lines.element.{name}").field_id).encode()
        for name in ("sku", "n")
    }
    assert table.scan(row_filter="count > 5 and price >= 1.10").to_arrow().num_rows == 1


def test_an_existing_table_without_snapshot_gets_one(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    catalog.create_table((namespace, "orders"), SAMPLE)
    sink = make(autoCreateTable=False)
    session = opened(sink)
    assert snapshots(catalog, namespace) >= 1
    pump(sink, session, 0, 10)
    assert ids(catalog, namespace) == expected(10)


def test_a_start_outlives_that_somebody_else_makes_the_table(make: MakeSink) -> None:
    sink = make()
    first = sink.open(TARGET, Run())
    first.restart({"p0": 7}, "topic-1")
    other = sink.open(replace(TARGET, branch="other"), Run())
    other.restart({"p0": 0}, "topic-1")
    other.table.create(SAMPLE)
    peeked = sink.peek(TARGET)
    assert peeked is not None
    assert peeked.positions == {"p0": 7}
    again = sink.open(TARGET, Run())
    assert (again.checkpoint.positions, again.checkpoint.epoch) == ({"p0": 7}, 2)
    with pytest.raises(TakenOver):
        first.table.create(SAMPLE)
    again.forget()
    assert sink.peek(TARGET) is None


def test_a_missing_table_without_leave_to_create_it(make: MakeSink) -> None:
    with pytest.raises(PermanentError, match="does not exist: create it, or set autoCreateTable"):
        make(autoCreateTable=False).open(TARGET, Run())


def test_a_restart_that_empties_is_one_commit(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    pump(sink, session, 0, 10)
    before = snapshots(catalog, namespace)
    session.restart({"p0": 10, "p1": 10}, "topic-1", empty=True)
    assert snapshots(catalog, namespace) == before + 1
    assert ids(catalog, namespace) == []
    assert session.checkpoint.positions == {"p0": 10, "p1": 10}
    pump(sink, session, 10, 10)
    assert len(ids(catalog, namespace)) == 20


def test_restart_and_forget(make: MakeSink, catalog: Catalog, namespace: str) -> None:
    sink = make()
    session = opened(sink)
    pump(sink, session, 0, 10)
    session.restart({"p0": 5, "p1": 10}, "topic-2")
    assert session.checkpoint.positions == {"p0": 5, "p1": 10}
    other = opened(sink)
    other.forget()
    assert sink.peek(TARGET) is None
    with pytest.raises(TakenOver, match="was taken over by run"):
        session.begin(span_of(10, 10))
    assert ids(catalog, namespace) == expected(10)


def test_large_slices_roll_to_several_files(
    make: MakeSink, catalog: Catalog, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "dataflow_assets.connectors.iceberg.table.file_writer.FileWriter.holds", 4096
    )
    sink = make(targetFileSizeBytes=4096)
    session = opened(sink)
    piece = OffsetSlice("p0", 0, 5000)
    writer = sink.writer(session.ticket(), piece)
    for first in range(0, 5000, 100):
        writer.write(Chunk(rows(first, 100), [], first + 100, 0))
    receipt = writer.close(complete=False)
    assert len(receipt.staged) > 1
    session.finish(Span((piece,)), [receipt], SOURCE)
    assert ids(catalog, namespace) == list(range(5000))


def test_many_small_manifests_are_merged(make: MakeSink, catalog: Catalog, namespace: str) -> None:
    sink = make()
    opened(sink)
    table = catalog.load_table((namespace, "orders"))
    with table.transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "4"})
    session = opened(sink)
    for first in range(0, 100, 10):
        pump(sink, session, first, 10)
    table.refresh()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) <= 4
    assert ids(catalog, namespace) == expected(100)
    assert table.inspect.files().num_rows == 20
    session.restart({}, "topic-1", empty=True)
    assert ids(catalog, namespace) == []


def test_the_prefix_of_the_catalog_is_part_of_each_path(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    """Without a warehouse this catalog names none itself; its own buckets are prefixes."""
    sink = make(warehouse=None, prefix="lake")
    pump(sink, opened(sink), 0, 5)
    assert catalog.load_table((namespace, "orders")).scan().to_arrow().num_rows == 10
    elsewhere = make(warehouse=None, prefix="nowhere")
    with pytest.raises(PermanentError, match="nowhere"):
        opened(elsewhere)
