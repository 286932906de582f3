"""What a table's columns become on their way to a sink: Iceberg's types as interchange types."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from dataflow_assets.connectors.iceberg.types import JSON_DOC, NUMERIC_DOC, text_kind
from dataflow_assets.contracts import Kind, TypeRow, checked_name

_SIMPLE: dict[type[ice.IcebergType], pa.DataType] = {
    ice.BooleanType: pa.bool_(),
    ice.IntegerType: pa.int32(),
    ice.LongType: pa.int64(),
    ice.FloatType: pa.float32(),
    ice.DoubleType: pa.float64(),
    ice.DateType: pa.date32(),
    ice.TimeType: pa.time64("us"),
    ice.TimestampType: pa.timestamp("us"),
    ice.TimestamptzType: pa.timestamp("us", "UTC"),
    ice.TimestampNanoType: pa.timestamp("ns"),
    ice.TimestamptzNanoType: pa.timestamp("ns", "UTC"),
    ice.StringType: pa.string(),
    ice.UUIDType: pa.string(),
    ice.BinaryType: pa.binary(),
    ice.FixedType: pa.binary(),
    ice.GeometryType: pa.binary(),
    ice.GeographyType: pa.binary(),
    ice.UnknownType: pa.null(),
    ice.MapType: pa.string(),
}


def typed_schema(schema: Schema) -> pa.Schema:
    """The columns in interchange types, under their names of this schema."""
    return pa.schema([arrow_field(column) for column in schema.fields])


def arrow_field(column: ice.NestedField) -> pa.Field:
    kind = _kind(column)
    metadata = kind.mark if kind else None
    return pa.field(
        checked_name(column.name), arrow_type(column.field_type), column.optional, metadata
    )


def _kind(column: ice.NestedField) -> Kind | None:
    if isinstance(column.field_type, ice.UUIDType):
        return Kind.UUID
    if isinstance(column.field_type, ice.MapType):
        return Kind.JSON
    if isinstance(column.field_type, ice.StringType):
        return text_kind(column)
    return None


def arrow_type(kind: ice.IcebergType) -> pa.DataType:
    """The interchange type; nested fields carry their KIND."""
    if isinstance(kind, ice.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ice.StructType):
        return pa.struct([arrow_field(member) for member in kind.fields])
    if isinstance(kind, ice.ListType):
        return pa.list_(arrow_field(kind.element_field))
    return _SIMPLE[type(kind)]


def rows() -> tuple[TypeRow, ...]:
    return tuple(
        TypeRow(f'{kind} "{doc}"' if doc else str(kind), arrow_field(column), _NOTES.get(kind, ""))
        for kind, doc in _DOCUMENTED
        for column in [ice.NestedField(1, "x", kind, doc=doc, required=False)]
    )


_MAP = ice.MapType(1, ice.StringType(), 2, ice.LongType())
_DOCUMENTED: tuple[tuple[ice.IcebergType, str | None], ...] = (
    *((kind(), None) for kind in _SIMPLE if kind not in {ice.FixedType, ice.MapType}),
    (ice.StringType(), JSON_DOC),
    (ice.StringType(), NUMERIC_DOC),
    (ice.FixedType(16), None),
    (ice.DecimalType(18, 4), None),
    (ice.ListType(1, ice.LongType(), element_required=False), None),
    (ice.StructType(ice.NestedField(1, "a", ice.LongType(), required=False)), None),
    (_MAP, None),
)
_NOTES: dict[ice.IcebergType, str] = {
    _MAP: "an object whose keys are the keys as text",
    ice.GeometryType(): "WKB",
    ice.GeographyType(): "WKB",
}
