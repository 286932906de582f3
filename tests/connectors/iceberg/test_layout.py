"""Partitioned and sorted Iceberg tables: what a manifest says, and what stands in the files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import LongType, NestedField, TimestamptzType

from dataflow_assets.connectors.iceberg.layout import IcebergOrder, Term, parse_order, parse_term
from dataflow_assets.contracts import OFFSET, OffsetSlice, Span
from dataflow_assets.errors import PermanentError
from devservers import SeaweedFS
from tests.connectors.iceberg.driver import SOURCE, MakeSink, make_sink, opened, table_rows, write

COLUMNS = {
    "id": "long",
    "day": "date",
    "at": "timestamptz",
    "name": "string",
    "price": "decimal(9,2)",
    "u": "uuid",
    "raw": "binary",
    "t": "time",
}


@pytest.fixture
def make(seaweedfs: SeaweedFS, namespace: str) -> MakeSink:
    return partial(make_sink, seaweedfs, namespace, columns=COLUMNS)


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("created_at", Term("created_at")),
        ("identity(created_at)", Term("created_at")),
        (" day( created_at ) ", Term("created_at", "day")),
        ("Days(created_at)", Term("created_at", "day")),
        ("bucket(16, id)", Term("id", "bucket", 16)),
        ("truncate(10,`first name`)", Term("first name", "truncate", 10)),
    ],
)
def test_partition_terms(text: str, term: Term) -> None:
    assert parse_term(text) == term


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("id", IcebergOrder("id", descending=False, nulls_first=True)),
        ("id DESC", IcebergOrder("id", descending=True, nulls_first=False)),
        ("id asc nulls last", IcebergOrder("id", descending=False, nulls_first=False)),
        ("`a b` desc NULLS FIRST", IcebergOrder("a b", descending=True, nulls_first=True)),
    ],
)
def test_sort_orders(text: str, order: IcebergOrder) -> None:
    assert parse_order(text) == order


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"partitionBy": ["week(at)"]}, "'week(at)': unknown transform 'week'"),
        ({"partitionBy": ["bucket(id)"]}, "'bucket(id)': bucket needs a number of buckets"),
        ({"partitionBy": ["bucket(0, id)"]}, "must be from 1 to"),
        ({"partitionBy": ["day(3, at)"]}, "day takes a column alone, like day(created_at)"),
        ({"partitionBy": ["day(at"]}, "cannot read 'day(at'"),
        ({"partitionBy": ["day(at)", "days(at)"]}, "at_day is a duplicate"),
        ({"sortBy": ["id downwards"]}, "cannot read 'id downwards'"),
        ({"upsertMode": True}, "upsertMode requires conflictKey"),
        ({"conflictKey": "id"}, "conflictKey requires upsertMode: true"),
        ({"upsertMode": True, "conflictKey": ["id", "id"]}, "names a column twice"),
        (
            {"upsertMode": True, "conflictKey": "id", "deleteMode": "soft"},
            "deleteMode soft requires softDeleteColumn",
        ),
    ],
)
def test_what_cannot_be_is_refused_when_checked(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        make_sink(_Somewhere(), "n", **changes)  # type: ignore[arg-type]
    assert said in str(caught.value)


class _Somewhere:
    uri = "http://catalog:8181"
    warehouse = "s3://lake"
    access_key = secret_key = region = "x"
    s3_endpoint = "http://s3"


def batch(count: int) -> pa.RecordBatch:
    at = [datetime(2024, 1, 1 + n % 3, n % 24, tzinfo=UTC) if n % 5 else None for n in range(count)]
    columns = {
        "id": pa.array([(7 * n) % count for n in range(count)], pa.int64()),
        "day": pa.array([a.date() if a else None for a in at], pa.date32()),
        "at": pa.array(at, pa.timestamp("us", "UTC")),
        "name": pa.array([f"né{n % 4}-{n}" if n % 7 else None for n in range(count)]),
        "price": pa.array([f"{n}.25" for n in range(count)]).cast(pa.decimal128(9, 2)),
        "u": pa.array([f"00000000-0000-0000-0000-{n % 3:012}" for n in range(count)]),
        "raw": pa.array([f"r{n % 2}".encode() for n in range(count)]),
        "t": pa.array([n % 2 * 1_000_000 for n in range(count)], pa.int64()).cast(pa.time64("us")),
        OFFSET: pa.array(range(count), pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


def stored(make: MakeSink, catalog: Catalog, namespace: str, **changes: Any) -> Table:
    sink = make(**changes)
    session = opened(sink, sample=pa.schema([]))
    span = session.begin(Span((OffsetSlice("p0", 0, 200),)))
    session.finish(span, [write(sink, session, span.slices[0], batch(200))], SOURCE)
    return catalog.load_table((namespace, "orders"))


@pytest.mark.parametrize(
    ("terms", "files"),
    [
        (["day(at)"], 4),
        (["day"], 4),
        (["month(at)", "bucket(4, id)"], 8),
        (["hour(at)"], 25),
        (["year(day)", "truncate(3, name)"], 10),
        (["bucket(8, u)"], 3),
        (["u"], 3),
        (["raw", "t"], 2),
        (["truncate(5000, price)", "bucket(2, t)"], 4),
        (["bucket(4, at)", "bucket(4, day)", "bucket(4, raw)", "bucket(4, price)"], None),
    ],
)
def test_each_file_holds_one_partition_value(
    make: MakeSink, catalog: Catalog, namespace: str, terms: list[str], files: int | None
) -> None:
    table = stored(make, catalog, namespace, partitionBy=terms)
    tasks = list(table.scan().plan_files())
    assert files is None or len(tasks) == files
    assert len({task.file.partition for task in tasks}) == len(tasks)
    expected = sorted(batch(200).column("id").to_pylist())
    assert sorted(row["id"] for row in table_rows(catalog, namespace)) == expected
    assert table.scan("id = 5").count() == 1
    assert table.scan("at >= '2024-01-02T00:00:00+00:00'").count() == _later("at")
    assert table.scan("name = 'né1-1'").count() == 1


def _later(name: str) -> int:
    limit = datetime(2024, 1, 2, tzinfo=UTC)
    return sum(1 for at in batch(200).column(name).to_pylist() if at and at >= limit)


def test_partition_pruning_reads_only_what_it_needs(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    table = stored(make, catalog, namespace, partitionBy=["day(at)", "bucket(16, id)"])
    every = len(list(table.scan().plan_files()))
    one = list(table.scan("id = 5").plan_files())
    assert 0 < len(one) < every / 8
    assert all(task.file.file_path.find("id_bucket=") > 0 for task in one)


def test_rows_of_each_file_are_sorted_and_the_order_is_recorded(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sorts = ["name desc nulls last", "id"]
    table = stored(make, catalog, namespace, partitionBy=["day(at)"], sortBy=sorts)
    order = table.sort_order()
    assert [(str(f.direction), str(f.null_order)) for f in order.fields] == [
        ("DESC", "NULLS LAST"),
        ("ASC", "NULLS FIRST"),
    ]
    for task in table.scan().plan_files():
        assert task.file.sort_order_id == order.order_id
        with table.io.new_input(task.file.file_path).open() as stream:
            found = pq.read_table(stream).select(["name", "id"]).to_pylist()
        names = [row["name"] for row in found]
        known = [name for name in names if name is not None]
        assert known == sorted(known, reverse=True)
        assert None not in names[: len(known)]
        rest = [row["id"] for row in found[len(known) :]]
        assert rest == sorted(rest)


def test_existing_partitioned_tables_and_older_specs_are_written_to(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "at", TimestamptzType(), required=False)
    )
    spec = PartitionSpec(PartitionField(2, 1000, DayTransform(), "at_day"))
    table = catalog.create_table((namespace, "orders"), schema, partition_spec=spec)
    sink = make(columns={})
    session = opened(sink)
    span = session.begin(Span((OffsetSlice("p0", 0, 200),)))
    rows = batch(200).select(["id", "at", OFFSET])
    receipt = write(sink, session, span.slices[0], rows)
    with table.update_spec() as update:
        update.add_field("id", "bucket[4]", "id_bucket")
    session = opened(sink)  # the spec's change moves no head, a takeover does
    receipt = write(sink, session, span.slices[0], rows)
    with table.update_spec() as update:
        update.remove_field("at_day")
    session.finish(span, [receipt], SOURCE)
    session = opened(sink)
    span = session.begin(Span((OffsetSlice("p0", 200, 400),)))
    after = rows.set_column(2, OFFSET, pa.array(range(200, 400), pa.int64()))
    session.finish(span, [write(sink, session, span.slices[0], after)], SOURCE)
    assert len(table_rows(catalog, namespace)) == 400
    found = catalog.load_table((namespace, "orders")).scan().plan_files()
    assert {task.file.spec_id for task in found} == {1, 2}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"partitionBy": ["day(nope)"]}, "partitionBy names column nope, which the table lacks"),
        ({"partitionBy": ["day(id)"]}, "day cannot take column id, which is long"),
        ({"sortBy": ["nope"]}, "sortBy names column nope"),
        ({"upsertMode": True, "conflictKey": "nope"}, "conflictKey names column nope"),
    ],
)
def test_a_layout_that_does_not_fit_makes_no_table(
    make: MakeSink, catalog: Catalog, namespace: str, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(PermanentError) as caught:
        opened(make(**changes), sample=pa.schema([]))
    assert said in str(caught.value)
    assert catalog.list_tables(namespace) == []


def test_a_document_of_a_file_tells_spec_and_partition(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    sink = make(partitionBy=["day(at)"])
    session = opened(sink, sample=pa.schema([]))
    receipt = write(sink, session, OffsetSlice("p0", 0, 200), batch(200))
    documents = [json.loads(text) for text in receipt.staged]
    assert {document["spec"] for document in documents} == {0}
    assert None in [document["partition"][0] for document in documents]
