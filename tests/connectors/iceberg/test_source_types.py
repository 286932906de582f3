"""Every type of a table, as the Iceberg source delivers it and as the sink stores it."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from dataflow_assets.connectors.iceberg import IcebergSource
from dataflow_assets.connectors.iceberg.source.projection import project
from dataflow_assets.connectors.iceberg.source.types import typed_schema
from dataflow_assets.connectors.iceberg.types import file_schema, table_schema
from dataflow_assets.contracts import OFFSET, Limit, Note, OffsetSlice, Span
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.columns import conform
from devservers import SeaweedFS
from tests.connectors.iceberg.driver import SOURCE, make_sink, opened, write
from tests.connectors.iceberg.source_driver import (
    MakeSource,
    make_source,
    make_table,
    parts,
    read,
    spans,
)

ID = uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")
MOMENT = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
NOON = MOMENT.replace(tzinfo=None)
TAG = ice.StructType(
    ice.NestedField(101, "u", ice.UUIDType()), ice.NestedField(102, "n", ice.LongType())
)
COLUMNS: list[tuple[ice.IcebergType, Any, Any]] = [
    (ice.BooleanType(), True, True),
    (ice.IntegerType(), -(2**31), -(2**31)),
    (ice.LongType(), 2**63 - 1, 2**63 - 1),
    (ice.FloatType(), 0.5, 0.5),
    (ice.DoubleType(), 0.1, 0.1),
    (ice.DecimalType(38, 10), Decimal("-1.0000000001"), Decimal("-1.0000000001")),
    (ice.DateType(), date(2026, 1, 31), date(2026, 1, 31)),
    (ice.TimeType(), time(23, 59, 59, 999999), time(23, 59, 59, 999999)),
    (ice.TimestampType(), NOON, NOON),
    (ice.TimestamptzType(), MOMENT, MOMENT),
    (ice.StringType(), "ä", "ä"),
    (ice.UUIDType(), ID.bytes, str(ID)),
    (ice.FixedType(3), b"\x00\x01\xff", b"\x00\x01\xff"),
    (ice.BinaryType(), b"\xff", b"\xff"),
    (TAG, {"u": ID.bytes, "n": 1}, {"u": str(ID), "n": 1}),
    (ice.ListType(103, ice.IntegerType(), element_required=False), [1, None], [1, None]),
    (ice.ListType(104, TAG, element_required=False), [None], [None]),
    (
        ice.MapType(105, ice.StringType(), 106, ice.DecimalType(4, 2), value_required=False),
        [("k", Decimal("1.50")), ("z", None)],
        '{"k":1.50,"z":null}',
    ),
    (
        ice.MapType(107, ice.DateType(), 108, TAG, value_required=False),
        [(date(2026, 1, 31), {"u": ID.bytes, "n": 2})],
        json.dumps({"2026-01-31": {"u": str(ID), "n": 2}}, separators=(",", ":")),
    ),
]
KINDS = {11: b"uuid", 17: b"json", 18: b"json"}


@pytest.fixture
def make(seaweedfs: SeaweedFS, namespace: str) -> MakeSource:
    return partial(make_source, seaweedfs, namespace)


def test_every_type_of_a_table(make: MakeSource, catalog: Catalog, namespace: str) -> None:
    """Values, nulls, and among them empty lists and maps, so that lengths differ."""
    fields = [ice.NestedField(n + 1, f"c{n}", kind) for n, (kind, _, _) in enumerate(COLUMNS)]
    table = make_table(catalog, namespace, Schema(*fields))
    given = {f"c{n}": value for n, (_, value, _) in enumerate(COLUMNS)}
    empty: dict[str, Any] = {f"c{n}": [] for n in (15, 16, 17, 18)}
    names = [field.name for field in table.schema().fields]
    rows = [dict.fromkeys(names), given, dict.fromkeys(names) | empty, given]
    _import(table, pa.Table.from_pylist(rows, file_schema(table.schema(), names)))
    found, _ = read(make())
    expected = {f"c{n}": value for n, (_, _, value) in enumerate(COLUMNS)}
    nothing = dict.fromkeys(names)
    assert found == [nothing, expected, nothing | empty | {"c17": "{}", "c18": "{}"}, expected]
    assert read(make(), None, Limit(1))[0] == found
    ((span, _),) = spans(make())
    (batch,) = make().batches(span.slices[0], frozenset())
    for n, field in enumerate(batch.schema):
        assert (field.metadata or {}).get(Note.KIND) == KINDS.get(n), field
    assert batch.schema.field("c14").type.field("u").metadata == {Note.KIND: b"uuid"}


def test_uuids_as_other_writers_mark_them(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    schema = pa.schema([("u", pa.uuid())])
    values = [uuid.UUID(int=number) if number else None for number in range(100)]
    make_table(catalog, namespace, Schema(ice.NestedField(1, "u", ice.UUIDType()))).append(
        pa.table({"u": pa.array([one and one.bytes for one in values], pa.uuid())}, schema)
    )
    assert [row["u"] for row in read(make())[0]] == [one and str(one) for one in values]


def test_every_type_of_iceberg_is_documented() -> None:
    told = " ".join(row.system for row in IcebergSource.types())
    kinds: list[type[ice.IcebergType]] = [
        kind
        for kind in vars(ice).values()
        if isinstance(kind, type) and issubclass(kind, ice.IcebergType)
    ]
    for kind in set(kinds) - {ice.IcebergType, ice.PrimitiveType, ice.NestedField}:
        name = kind.__name__.removesuffix("Type").lower().replace("nano", "_ns")
        assert {"integer": "int"}.get(name, name) in told


def test_nanoseconds_are_kept_where_the_table_has_them() -> None:
    schema = Schema(
        ice.NestedField(1, "n", ice.TimestampNanoType()),
        ice.NestedField(2, "u", ice.TimestamptzType()),
    )
    moment = np.datetime64("2026-01-31T12:00:00.123456789", "ns")
    array = pa.array([moment], pa.timestamp("ns"))
    batch = pa.RecordBatch.from_arrays([array, array.cast(pa.timestamp("ns", "UTC"))], ["n", "u"])
    found = project(batch, schema, schema, {})
    assert found.schema.types == [pa.timestamp("ns"), pa.timestamp("us", "UTC")]
    assert found.column("n")[0].value % 1_000_000_000 == 123456789
    assert found.column("u")[0].value % 1_000_000 == 123456


def test_columns_that_were_renamed_added_widened_and_dropped(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    inner = pa.struct([("a", pa.int32()), ("gone", pa.string())])
    schema = pa.schema(
        [("id", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(4, 2)), ("s", inner)]
    )
    table = make_table(catalog, namespace, schema)
    row = {"id": 1, "f": 0.5, "d": Decimal("1.50"), "s": {"a": 7, "gone": "x"}}
    table.append(pa.Table.from_pylist([row], schema))
    with table.update_schema() as change:
        change.rename_column("id", "number")
        change.update_column("id", field_type=ice.LongType())
        change.update_column("f", field_type=ice.DoubleType())
        change.update_column("d", field_type=ice.DecimalType(8, 2))
        change.add_column(("s", "new"), ice.DateType())
        change.update_column(("s", "a"), field_type=ice.LongType())
        change.delete_column(("s", "gone"))
    with table.update_schema() as change:
        change.add_column("id", ice.StringType())
    (found,), _ = read(make())
    assert found == {
        "number": 1,
        "f": 0.5,
        "d": Decimal("1.50"),
        "s": {"a": 7, "new": None},
        "id": None,
    }


def test_a_table_of_new_columns_only(make: MakeSource, catalog: Catalog, namespace: str) -> None:
    table = make_table(catalog, namespace, pa.schema([("old", pa.int32())]))
    table.append(pa.table({"old": pa.array([1, 2], pa.int32())}))
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.add_column("new", ice.StringType())
        change.delete_column("old")
    assert read(make())[0] == [{"new": None}, {"new": None}]


def test_what_the_partition_tells_of_a_file_without_the_column(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    """As files imported from Hive are: the partition's columns are not in them."""
    schema = Schema(
        ice.NestedField(1, "id", ice.LongType()),
        ice.NestedField(2, "day", ice.DateType()),
        ice.NestedField(3, "land", ice.StringType()),
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "day"),
        PartitionField(3, 1001, IdentityTransform(), "land"),
    )
    table = catalog.create_table((namespace, "events"), schema, partition_spec=spec)
    rows = pa.Table.from_pylist([{"id": 5}], file_schema(table.schema(), ["id"]))
    _import(table, rows, Record(20_484, "de"))
    assert read(make())[0] == [{"id": 5, "day": date(2026, 1, 31), "land": "de"}]


def test_a_partition_whose_column_was_widened_while_it_was_read(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    schema = Schema(
        ice.NestedField(1, "id", ice.LongType()),
        ice.NestedField(2, "shop", ice.IntegerType()),
        ice.NestedField(3, "rate", ice.FloatType()),
    )
    fields = [PartitionField(n, 998 + n, IdentityTransform(), f"p{n}") for n in (2, 3)]
    table = catalog.create_table(
        (namespace, "events"), schema, partition_spec=PartitionSpec(*fields)
    )
    rows = pa.Table.from_pylist([{"id": 5}], file_schema(table.schema(), ["id"]))
    _import(table, rows, Record(7, 0.5))
    source = make()
    ((span, _),) = spans(source)
    with table.update_schema() as change:
        change.update_column("shop", ice.LongType())
        change.update_column("rate", ice.DoubleType())
    assert parts(source, span) == [[{"id": 5, "shop": 7, "rate": 0.5}]]


def test_a_partition_whose_column_was_dropped(
    make: MakeSource, catalog: Catalog, namespace: str
) -> None:
    """Older files still have its value in their partitions."""
    schema = Schema(
        ice.NestedField(1, "id", ice.LongType()), ice.NestedField(2, "land", ice.StringType())
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "land_1"))
    table = catalog.create_table((namespace, "events"), schema, partition_spec=spec)
    table.append(
        pa.Table.from_pylist([{"id": 1, "land": "de"}], file_schema(table.schema(), ["id", "land"]))
    )
    with table.update_spec() as change:
        change.remove_field("land_1")
    with table.update_schema() as update:
        update.delete_column("land")
    table.append(pa.Table.from_pylist([{"id": 2}], file_schema(table.schema(), ["id"])))
    assert read(make())[0] == [{"id": 1}, {"id": 2}]


def _import(table: Table, rows: pa.Table, partition: Record | None = None) -> None:
    path = f"{table.location()}/data/imported-{uuid.uuid4()}.parquet"
    with table.io.new_output(path).create() as stream:
        pq.write_table(rows, stream)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition or Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=len(table.io.new_input(path)),
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
    )
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(file)


def test_a_required_column_that_a_file_lacks() -> None:
    old = Schema(ice.NestedField(1, "a", ice.LongType()))
    new = Schema(ice.NestedField(2, "b", ice.LongType(), required=True))
    batch = pa.RecordBatch.from_pylist([{"a": 1}])
    with pytest.raises(PermanentError, match="column b is required, but a data file lacks it"):
        project(batch, old, new, {})


def kind(name: str, text: bytes) -> pa.Field:
    return pa.field(name, pa.string(), metadata={Note.KIND: text})


NESTED = pa.struct([kind("u", b"uuid"), pa.field("l", pa.list_(pa.int8()))])
INTERCHANGE: list[tuple[pa.Field, Any, str]] = [
    (pa.field("bool", pa.bool_()), True, "boolean"),
    (pa.field("i8", pa.int8()), -128, "int"),
    (pa.field("i16", pa.int16()), -(2**15), "int"),
    (pa.field("i32", pa.int32()), -(2**31), "int"),
    (pa.field("i64", pa.int64()), -(2**63), "long"),
    (pa.field("u8", pa.uint8()), 255, "int"),
    (pa.field("u16", pa.uint16()), 2**16 - 1, "int"),
    (pa.field("u32", pa.uint32()), 2**32 - 1, "long"),
    (pa.field("u64", pa.uint64()), 2**64 - 1, "decimal(20, 0)"),
    (pa.field("f32", pa.float32()), 0.5, "float"),
    (pa.field("f64", pa.float64()), 0.1, "double"),
    (pa.field("dec", pa.decimal128(38, 9)), Decimal("1.000000001"), "decimal(38, 9)"),
    (pa.field("wide", pa.decimal256(50, 2)), Decimal(f"{10**47}.25"), "string"),
    (pa.field("d256", pa.decimal256(20, 2)), Decimal("3.25"), "decimal(20, 2)"),
    (pa.field("text", pa.string()), "ä", "string"),
    (pa.field("bytes", pa.binary()), b"\x00\xff", "binary"),
    (pa.field("date", pa.date32()), date(1, 1, 1), "date"),
    (pa.field("time", pa.time64("us")), time(23, 59, 59, 999999), "time"),
    (pa.field("ts", pa.timestamp("us")), NOON, "timestamp"),
    (pa.field("tz", pa.timestamp("us", "UTC")), MOMENT, "timestamptz"),
    (pa.field("ns", pa.timestamp("ns")), np.datetime64("2026-01-31T12:00:00.123456789"), "string"),
    (pa.field("list", pa.list_(pa.string())), ["a", None], "list<string>"),
    (pa.field("struct", NESTED), {"u": str(ID), "l": [1]}, "struct"),
    (pa.field("null", pa.null()), None, "string"),
    (kind("json", b"json"), '{"a":1}', "string"),
    (kind("numeric", b"numeric"), "1234567890123456789012345678901234567890.5", "string"),
    (kind("nan", b"numeric"), "NaN", "string"),
    (kind("uuid", b"uuid"), str(ID), "uuid"),
    (kind("other", b"text"), "1 day", "string"),
    (pa.field("jsons", pa.list_(kind("element", b"json"))), ['{"a":1}'], "string"),
]
COMES_BACK = {
    "wide": f"{10**47}.25",
    "ns": "2026-01-31T12:00:00.123456789Z",
    "u64": Decimal(2**64 - 1),
    "jsons": '[{"a":1}]',
}


def test_every_interchange_type_is_stored_without_loss(
    seaweedfs: SeaweedFS, namespace: str, catalog: Catalog
) -> None:
    """A table made for the types, written by the sink, and read by the source."""
    sample = pa.schema([field for field, _, _ in INTERCHANGE])
    for column, (field, _, kind_) in zip(table_schema(sample).fields, INTERCHANGE, strict=True):
        assert str(column.field_type).startswith(kind_), field
    sink = make_sink(seaweedfs, namespace, table="events")
    session = opened(sink, sample=sample)
    arrays = [pa.array([None, value], field.type) for field, value, _ in INTERCHANGE]
    batch = pa.RecordBatch.from_arrays(arrays, schema=sample)
    batch = batch.append_column(OFFSET, pa.array([0, 1], pa.int64()))
    schema = session.table.schema()
    assert schema is not None
    conformed = conform(batch, schema)
    assert conformed.refused == {}
    span = session.begin(Span((OffsetSlice("p0", 0, 2), OffsetSlice("p1", 0, 0))))
    receipt = write(sink, session, span.slices[0], conformed.rows)
    assert receipt.totals.rejected == 0
    session.finish(span, [receipt], SOURCE)
    (nothing, found), _ = read(make_source(seaweedfs, namespace))
    expected = {field.name: value for field, value, _ in INTERCHANGE} | COMES_BACK
    assert found == expected
    assert set(nothing.values()) == {None}
    back = typed_schema(catalog.load_table((namespace, "events")).schema())
    for name in ("json", "numeric", "uuid"):
        assert back.field(name).metadata == {Note.KIND: name.encode()}
    assert back.field("wide").metadata == {Note.KIND: b"numeric"}


def test_maps_travel_as_objects_and_become_maps_again(
    seaweedfs: SeaweedFS, namespace: str, catalog: Catalog
) -> None:
    """Into a table that has them; a key or a value that does not fit costs its row."""
    days = ice.MapType(10, ice.DateType(), 11, ice.TimestamptzType(), value_required=False)
    prices = ice.MapType(12, ice.LongType(), 13, ice.DecimalType(9, 2), value_required=False)
    fields = [ice.NestedField(1, "d", days), ice.NestedField(2, "p", prices)]
    table = catalog.create_table((namespace, "events"), Schema(*fields))
    sink = make_sink(seaweedfs, namespace, table="events")
    session = opened(sink)
    schema = session.table.schema()
    assert schema is not None
    texts = {
        "d": ['{"2026-01-31":"2026-01-31T12:00:00.123456Z"}', "{}", None, "{}"],
        "p": ['{"7":1.50,"8":null}', '{"x":1}', None, "[]"],
        OFFSET: [0, 1, 2, 3],
    }
    kinds = [kind("d", b"json"), kind("p", b"json"), pa.field(OFFSET, pa.int64())]
    conformed = conform(pa.RecordBatch.from_pydict(texts, pa.schema(kinds)), schema)
    assert sorted(conformed.refused) == [1, 3]
    span = session.begin(Span((OffsetSlice("p0", 0, 4), OffsetSlice("p1", 0, 0))))
    receipt = write(sink, session, span.slices[0], conformed.rows)
    session.finish(span, [receipt], SOURCE)
    first, second = table.refresh().scan().to_arrow().to_pylist()
    assert first == {
        "d": [(date(2026, 1, 31), MOMENT)],
        "p": [(7, Decimal("1.50")), (8, None)],
    }
    assert second == {"d": None, "p": None}
    found, _ = read(make_source(seaweedfs, namespace))
    assert found[0] == {
        "d": '{"2026-01-31":"2026-01-31T12:00:00.123456Z"}',
        "p": '{"7":1.50,"8":null}',
    }
