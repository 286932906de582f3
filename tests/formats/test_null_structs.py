"""A null stands for a struct with required fields, in every format and source that has structs."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from dataflow_assets.connectors.iceberg.source.projection import project
from dataflow_assets.connectors.iceberg.source.types import TRAVELLING
from dataflow_assets.connectors.iceberg.table.encode import encode
from dataflow_assets.connectors.iceberg.table.stored_rows import _align
from dataflow_assets.connectors.iceberg.types import file_schema
from dataflow_assets.connectors.trino.decode import decode_column
from dataflow_assets.connectors.trino.type_names import TrinoType
from dataflow_assets.contracts import OFFSET, Kind
from dataflow_assets.formats.conversions import convert
from dataflow_assets.formats.json import JsonDecoder
from dataflow_assets.formats.structs import cast, sound, struct_of

LONG, TEXT = ice.LongType(), ice.StringType()
PAIR = ice.StructType(
    ice.NestedField(11, "a", LONG, required=True), ice.NestedField(12, "b", TEXT, required=False)
)
LONGS = ice.ListType(31, LONG, element_required=True)
COUNTS = ice.MapType(41, TEXT, 42, LONG, value_required=True)
KINDS: dict[str, tuple[Any, Any]] = {
    "struct": (PAIR, {"a": 1, "b": None}),
    "list of structs": (ice.ListType(21, PAIR, element_required=True), [{"a": 1, "b": "x"}]),
    "list of null structs": (ice.ListType(21, PAIR, element_required=False), [None, {"a": 1}]),
    "map of structs": (ice.MapType(22, TEXT, 23, PAIR, value_required=True), {"k": {"a": 1}}),
    "map of null structs": (
        ice.MapType(22, TEXT, 23, PAIR, value_required=False),
        {"k": None, "l": {"a": 1}},
    ),
    "struct of a struct": (
        ice.StructType(ice.NestedField(51, "s", PAIR, required=True)),
        {"s": {"a": 1, "b": "y"}},
    ),
    "struct of list and map": (
        ice.StructType(
            ice.NestedField(61, "l", LONGS, required=True),
            ice.NestedField(62, "m", COUNTS, required=True),
        ),
        {"l": [1, 2], "m": {"k": 3}},
    ),
    "struct of an optional struct": (
        ice.StructType(
            ice.NestedField(71, "s", PAIR, required=False),
            ice.NestedField(72, "c", LONG, required=True),
        ),
        {"s": None, "c": 4},
    ),
}
ROWS = [None, "value", None, "value"]
IDS = range(len(ROWS))


def schema_of(kind: Any) -> Schema:
    return Schema(ice.NestedField(1, "v", kind, required=False))


def normal(value: Any) -> Any:
    """Without what is null, and maps as objects."""
    if isinstance(value, dict):
        return {k: normal(v) for k, v in value.items() if v is not None}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {k: normal(v) for k, v in value if v is not None}
    return [normal(one) for one in value] if isinstance(value, list) else value


def in_parquet(array: pa.Array) -> list[Any]:
    """What a file says that the array was written to."""
    assert array.validate(full=True) is None
    file = io.BytesIO()
    pq.write_table(pa.table({"v": array}), file)
    return [normal(one) for one in pq.read_table(file)["v"].to_pylist()]


def hiding(array: pa.Array) -> pa.Array:
    """Whatever lies under a null is null as well, as other writers leave it."""
    kind = array.type
    if not pa.types.is_struct(kind):
        return array
    children = [hiding(child) for child in array.flatten()]
    mask = array.is_null()
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def optional(kind: pa.DataType) -> pa.DataType:
    """The type without required fields."""
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(optional(f.type)).with_nullable(True) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(optional(kind.item_type)))
    if pa.types.is_list(kind):
        value = kind.value_field
        return pa.list_(value.with_type(optional(value.type)).with_nullable(True))
    return kind


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest) -> tuple[Any, list[Any], list[Any]]:
    """An Iceberg type, values of it, and what a reader sees of them."""
    kind, value = KINDS[request.param]
    values = [value if row else None for row in ROWS]
    return kind, values, [normal(one) for one in values]


def test_json(case: Any) -> None:
    kind, values, expected = case
    (field,) = file_schema(schema_of(kind), ["v"])
    texts = [json.dumps({"v": value}).encode() for value in values]
    rows = JsonDecoder(pa.schema([field])).decode(pa.array(texts), pa.array(IDS, pa.int64()))
    assert rows.rejected == []
    assert in_parquet(rows.rows.column("v")) == expected


def test_columns_of_a_format_or_a_source(case: Any) -> None:
    """Avro's records come with optional fields only."""
    kind, values, expected = case
    (field,) = file_schema(schema_of(kind), ["v"])
    given = pa.field("v", optional(field.type))
    column = hiding(pa.array(values, given.type))
    if not is_map(kind):
        assert in_parquet(convert(column, given, field)) == expected
    assert in_parquet(cast(column, field.type)) == expected
    assert in_parquet(cast(column.slice(1), field.type)) == expected[1:]


def test_columns_of_json(case: Any) -> None:
    """As sources deliver maps."""
    kind, values, expected = case
    (field,) = file_schema(schema_of(kind), ["v"])
    given = Kind.JSON.field("v")
    texts = pa.array([None if one is None else json.dumps(one) for one in values])
    assert in_parquet(convert(texts, given, field)) == expected


def test_a_column_without_any_value(case: Any) -> None:
    (field,) = file_schema(schema_of(case[0]), ["v"])
    given = pa.field("v", optional(field.type))
    assert in_parquet(convert(pa.nulls(2, given.type), given, field)) == [None, None]


def test_what_the_sink_writes(case: Any) -> None:
    kind, values, expected = case
    schema = file_schema(schema_of(kind), ["v"])
    column = hiding(pa.array(values, optional(schema.field("v").type)))
    rows = pa.record_batch([column, pa.array(IDS, pa.int64())], names=["v", OFFSET])
    found, refused = encode(rows, schema)
    assert refused == []
    assert in_parquet(found.column("v")) == expected


def test_files_of_others(case: Any) -> None:
    """They may hold anything under a null."""
    kind, values, expected = case
    (field,) = file_schema(schema_of(kind), ["v"])
    column = hiding(pa.array(values, field.type))
    assert in_parquet(sound(column)) == expected
    assert in_parquet(sound(column.slice(1, 2))) == expected[1:3]
    assert in_parquet(_align(column, field, len(column))) == expected


def test_an_iceberg_table_as_source(case: Any) -> None:
    kind, values, _ = case
    schema = schema_of(kind)
    column = hiding(pa.array(values, TRAVELLING.arrow(kind) if not is_map(kind) else None))
    if not is_map(kind):
        found = project(pa.record_batch([column], names=["v"]), schema, schema, {})
        assert found.column("v").is_null().to_pylist() == [row is None for row in ROWS]
        in_parquet(found.column("v"))


def is_map(kind: Any) -> bool:
    """Maps are JSON there."""
    return "map" in str(kind)


def test_trino() -> None:
    arrow = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
    kind = TrinoType.of("row(a bigint, b varchar)")
    found = decode_column([[1, "x"], None], kind, arrow)
    assert in_parquet(found) == [{"a": 1, "b": "x"}, None]


def test_a_required_field_that_is_null_in_a_struct_stays_so() -> None:
    """It is for the sink to refuse that row."""
    fields = [pa.field("a", pa.int64(), nullable=False)]
    found = struct_of([pa.array([None, None, 3])], fields, pa.array([True, False, False]))
    assert found.to_pylist() == [None, {"a": None}, {"a": 3}]
    assert found.field(0).null_count == 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [("5", pa.int64()), ("2.5", pa.decimal128(5, 2)), ("10:00:00", pa.time64("us"))],
    ids=str,
)
def test_what_stands_below_a_null_is_not_converted(text: str, kind: pa.DataType) -> None:
    """Arrow's own builders put empty texts there."""
    given, wanted = (pa.struct([("a", one)]) for one in (pa.string(), kind))
    found = convert(
        pa.array([{"a": text}, None], given), pa.field("v", given), pa.field("v", wanted)
    )
    assert found.is_null().to_pylist() == [False, True]
    listed = pa.array([[{"a": text}, None]], pa.list_(given))
    found = convert(listed, pa.field("v", listed.type), pa.field("v", pa.list_(wanted)))
    assert found.to_pylist()[0][1] is None


def test_a_null_for_a_struct_with_bytes_of_a_fixed_length() -> None:
    required = pa.struct([pa.field("a", pa.binary(3), nullable=False)])
    given = pa.array([{"a": b"abc"}, None], pa.struct([("a", pa.binary())]))
    assert in_parquet(cast(given, required)) == [{"a": b"abc"}, None]
    with pytest.raises(pa.ArrowInvalid, match="widths must match"):
        cast(pa.array([{"a": b"ab"}, None], given.type), required)
