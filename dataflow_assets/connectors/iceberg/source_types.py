"""What a table's columns become on their way to a sink: Iceberg's types as interchange types."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from dataflow_assets.connectors.iceberg.types import JSON_DOC, NUMERIC_DOC, text_kind
from dataflow_assets.contracts import KIND

TYPES: tuple[tuple[str, str], ...] = (
    ("boolean", "bool"),
    ("int", "int32"),
    ("long", "int64"),
    ("float", "float32"),
    ("double", "float64"),
    ("decimal(p,s)", "decimal128(p,s)"),
    ("date", "date32"),
    ("time", "time64(us)"),
    ("timestamp", "timestamp(us)"),
    ("timestamptz", "timestamp(us, UTC)"),
    ("timestamp_ns", "timestamp(ns)"),
    ("timestamptz_ns", "timestamp(ns, UTC)"),
    ("string", "string"),
    (f'string with the comment "{JSON_DOC}"', "string, KIND json"),
    (f'string with the comment "{NUMERIC_DOC}"', "string, KIND numeric"),
    ("uuid", "string, KIND uuid"),
    ("fixed(n), binary", "binary"),
    ("geometry, geography", "binary (WKB)"),
    ("unknown", "null"),
    ("struct<...>", "struct<...>"),
    ("list<T>", "list<T>"),
    ("map<K, V>", "string, KIND json: an object whose keys are the keys as text"),
)
"""Iceberg type and interchange type, for the documentation."""

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
    """One column."""
    kind = _kind(column)
    metadata = {KIND: kind} if kind else None
    return pa.field(column.name, arrow_type(column.field_type), column.optional, metadata)


def _kind(column: ice.NestedField) -> bytes | None:
    if isinstance(column.field_type, ice.UUIDType):
        return b"uuid"
    if isinstance(column.field_type, ice.MapType):
        return b"json"
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
