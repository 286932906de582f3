"""Iceberg types and Arrow types, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from dataflow_assets.contracts import Kind, checked_name, kind_of
from dataflow_assets.errors import PermanentError

FIELD_ID = b"PARQUET:field_id"
JSON_DOC = "JSON text"
NUMERIC_DOC = "Digits of a number"

_SIMPLE: dict[ice.IcebergType, pa.DataType] = {
    ice.BooleanType(): pa.bool_(),
    ice.IntegerType(): pa.int32(),
    ice.LongType(): pa.int64(),
    ice.FloatType(): pa.float32(),
    ice.DoubleType(): pa.float64(),
    ice.DateType(): pa.date32(),
    ice.TimeType(): pa.time64("us"),
    ice.TimestampType(): pa.timestamp("us"),
    ice.TimestamptzType(): pa.timestamp("us", "UTC"),
    ice.StringType(): pa.string(),
    ice.BinaryType(): pa.binary(),
}
_DOCS: Mapping[Kind | None, str] = {Kind.JSON: JSON_DOC, Kind.NUMERIC: NUMERIC_DOC}
"""By KIND: how the comment of a string column begins that holds such text."""
_BACK = {arrow: iceberg for iceberg, arrow in _SIMPLE.items()} | {
    pa.null(): ice.StringType(),
    pa.int8(): ice.IntegerType(),
    pa.int16(): ice.IntegerType(),
    pa.uint8(): ice.IntegerType(),
    pa.uint16(): ice.IntegerType(),
    pa.uint32(): ice.LongType(),
    pa.uint64(): ice.DecimalType(20, 0),
    pa.large_string(): ice.StringType(),
    pa.large_binary(): ice.BinaryType(),
    pa.uuid(): ice.UUIDType(),
}


class Unfillable(Exception):
    """No value of a record can become this Iceberg type."""


def row_schema(schema: Schema) -> pa.Schema:
    """The columns that rows arrive in: no field ids, JSON text marked, uuid as text.

    Optional columns that nothing can fill are left out. Raises PermanentError for a required one.
    """
    fields: list[pa.Field] = []
    for column in schema.fields:
        try:
            fields.append(_field(column, ids=False))
        except Unfillable:
            if column.required:
                raise PermanentError(
                    f"column {column.name} is required and has the type {column.field_type}, "
                    "which this sink cannot write: make it optional"
                ) from None
    return pa.schema(fields)


def file_schema(schema: Schema, names: Iterable[str]) -> pa.Schema:
    """The columns as they stand in the file: with field ids."""
    wanted = set(names)
    columns = [column for column in schema.fields if column.name in wanted]
    return pa.schema([_field(column, ids=True) for column in columns])


def _field(column: ice.NestedField, *, ids: bool) -> pa.Field:
    metadata: dict[bytes, bytes] = {}
    if ids:
        metadata[FIELD_ID] = str(column.field_id).encode()
    elif isinstance(column.field_type, ice.UUIDType):
        metadata |= Kind.UUID.mark
    elif isinstance(column.field_type, ice.StringType) and (kind := text_kind(column)):
        metadata |= kind.mark
    arrow = _arrow(column.field_type, ids=ids)
    return pa.field(
        checked_name(column.name), arrow, nullable=column.optional, metadata=metadata or None
    )


def text_kind(column: ice.NestedField) -> Kind | None:
    """Returns what a string column holds by its comment: json, numeric, or plain text."""
    doc = column.doc or ""
    return next((kind for kind, start in _DOCS.items() if doc.startswith(start)), None)


def _arrow(kind: ice.IcebergType, *, ids: bool) -> pa.DataType:
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if isinstance(kind, ice.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ice.StructType):
        return pa.struct([_field(member, ids=ids) for member in kind.fields])
    if isinstance(kind, ice.ListType):
        return pa.list_(_field(kind.element_field, ids=ids))
    if isinstance(kind, ice.MapType):
        return pa.map_(_field(kind.key_field, ids=ids), _field(kind.value_field, ids=ids))
    if isinstance(kind, ice.UUIDType):
        return pa.binary(16) if ids else pa.string()
    if isinstance(kind, ice.FixedType):
        return pa.binary(len(kind)) if ids else pa.binary()
    raise Unfillable(str(kind))


def table_schema(columns: Iterable[pa.Field]) -> Schema:
    """The Iceberg schema of a table that is made for these columns: types that lose nothing.

    Nanoseconds are text: tables of format 2 have none. So are decimals of more than 38 digits and
    uuids inside of lists and structs.
    """
    ids = count(1)
    return Schema(*[_top(field, ids) for field in columns])


def _top(field: pa.Field, ids: count[int]) -> ice.NestedField:
    if _text(field) == Kind.UUID:
        return ice.NestedField(next(ids), field.name, ice.UUIDType(), required=not field.nullable)
    return _column(field, ids)


def _column(field: pa.Field, ids: count[int]) -> ice.NestedField:
    text = _text(field)
    kind = ice.StringType() if text in _DOCS else _iceberg(field.type, ids)
    doc = _DOCS.get(text)
    return ice.NestedField(next(ids), field.name, kind, doc=doc, required=not field.nullable)


def _text(field: pa.Field) -> Kind | None:
    """The kind of text that a column becomes or is."""
    if _is_json(field):
        return Kind.JSON
    if pa.types.is_decimal(field.type) and not _fits(field.type):
        return Kind.NUMERIC
    return kind_of(field)


def _is_json(field: pa.Field) -> bool:
    """JSON text, empty structs, and lists whose elements would be: a list element has no doc."""
    kind = field.type
    if pa.types.is_list(kind):
        return _is_json(kind.value_field)
    if pa.types.is_map(kind):
        return _is_json(kind.item_field)
    empty = pa.types.is_struct(kind) and kind.num_fields == 0
    return isinstance(kind, pa.JsonType) or empty or kind_of(field) == Kind.JSON


def _iceberg(kind: pa.DataType, ids: count[int]) -> ice.IcebergType:
    if kind in _BACK:
        return _BACK[kind]
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return ice.TimestamptzType() if kind.tz else ice.TimestampType()
    if pa.types.is_timestamp(kind) or (pa.types.is_decimal(kind) and not _fits(kind)):
        return ice.StringType()
    if pa.types.is_decimal(kind):
        return ice.DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return ice.FixedType(kind.byte_width)
    return _compound(kind, ids)


def _fits(kind: pa.DataType) -> bool:
    """Iceberg's decimals have at most 38 digits, and none are cut off before the point."""
    return bool(kind.precision <= 38 and 0 <= kind.scale <= kind.precision)


def _compound(kind: pa.DataType, ids: count[int]) -> ice.IcebergType:
    if pa.types.is_struct(kind):
        return ice.StructType(*[_column(member, ids) for member in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _iceberg(kind.value_type, ids)
        return ice.ListType(next(ids), element, element_required=False)
    if pa.types.is_map(kind):
        key, value = _iceberg(kind.key_type, ids), _iceberg(kind.item_type, ids)
        return ice.MapType(next(ids), key, next(ids), value, value_required=False)
    raise PermanentError(f"no Iceberg type for the Arrow type {kind}")
