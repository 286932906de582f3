"""Iceberg types and Arrow types, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from dataflow_assets.contracts import Kind, checked_name
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.types.comments import COMMENTS, commented_kind, fits, text_kind

FIELD_ID = b"PARQUET:field_id"
SIMPLE: Mapping[type[ice.IcebergType], pa.DataType] = {
    ice.BooleanType: pa.bool_(),
    ice.IntegerType: pa.int32(),
    ice.LongType: pa.int64(),
    ice.FloatType: pa.float32(),
    ice.DoubleType: pa.float64(),
    ice.DateType: pa.date32(),
    ice.TimeType: pa.time64("us"),
    ice.TimestampType: pa.timestamp("us"),
    ice.TimestamptzType: pa.timestamp("us", "UTC"),
    ice.StringType: pa.string(),
    ice.BinaryType: pa.binary(),
}
_KINDS = {ice.UUIDType: Kind.UUID, ice.MapType: Kind.JSON}
_BACK = {arrow: iceberg() for iceberg, arrow in SIMPLE.items()} | {
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


@dataclass(frozen=True)
class ArrowForm:
    """A form in which columns travel: `others` are its types beside those of SIMPLE.

    `ids`: as they stand in files, with their numbers; otherwise text says which kind it is of.
    """

    others: Mapping[type[ice.IcebergType], pa.DataType]
    ids: bool = False

    def field(self, column: ice.NestedField) -> pa.Field:
        arrow, metadata = self.arrow(column.field_type), {}
        if self.ids:
            metadata = {FIELD_ID: str(column.field_id).encode()}
        elif arrow == pa.string():
            kind = _KINDS.get(type(column.field_type)) or commented_kind(column.doc)
            metadata = kind.mark if kind else {}
        return pa.field(checked_name(column.name), arrow, column.optional, metadata or None)

    def arrow(self, kind: ice.IcebergType) -> pa.DataType:
        """The type in Arrow, with its kinds inside. Raises Unfillable where there is none."""
        if isinstance(kind, ice.FixedType) and self.ids:
            return pa.binary(len(kind))
        if arrow := SIMPLE.get(type(kind)) or self.others.get(type(kind)):
            return arrow
        if isinstance(kind, ice.DecimalType):
            return pa.decimal128(kind.precision, kind.scale)
        if isinstance(kind, ice.StructType):
            return pa.struct(map(self.field, kind.fields))
        if isinstance(kind, ice.ListType):
            return pa.list_(self.field(kind.element_field))
        if isinstance(kind, ice.MapType):
            return pa.map_(self.field(kind.key_field), self.field(kind.value_field))
        raise Unfillable(str(kind))


_ROWS = ArrowForm({ice.UUIDType: pa.string(), ice.FixedType: pa.binary()})
_FILES = ArrowForm({ice.UUIDType: pa.binary(16)}, ids=True)


def row_schema(schema: Schema) -> pa.Schema:
    """The columns that rows arrive in: no field ids, JSON text marked, uuid as text.

    Optional columns that nothing can fill are left out. Raises PermanentError for a required one.
    """
    fields: list[pa.Field] = []
    for column in schema.fields:
        try:
            fields.append(_ROWS.field(column))
        except Unfillable:
            if column.required:
                raise PermanentError(
                    f"column {column.name} is required and has the type {column.field_type}, "
                    "which this sink cannot write: make it optional"
                ) from None
    return pa.schema(fields)


def file_schema(schema: Schema, names: Iterable[str]) -> pa.Schema:
    """The columns as they stand in the file: with field ids."""
    chosen = set(names)
    return pa.schema([_FILES.field(column) for column in schema.fields if column.name in chosen])


def table_schema(columns: Iterable[pa.Field]) -> Schema:
    """The Iceberg schema of a table that is made for these columns: types that lose nothing.

    Nanoseconds are text: tables of format 2 have none. So are decimals of more than 38 digits and
    uuids inside of lists and structs.
    """
    ids = count(1)
    return Schema(*[_column(field, ids, top=True) for field in columns])


def _column(field: pa.Field, ids: count[int], *, top: bool = False) -> ice.NestedField:
    text = text_kind(field, inside=True)
    if top and text == Kind.UUID:
        kind: ice.IcebergType = ice.UUIDType()
    else:
        kind = ice.StringType() if text in COMMENTS else _iceberg(field.type, ids)
    doc = COMMENTS.get(text)
    return ice.NestedField(next(ids), field.name, kind, doc=doc, required=not field.nullable)


def _iceberg(kind: pa.DataType, ids: count[int]) -> ice.IcebergType:
    if kind in _BACK:
        return _BACK[kind]
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return ice.TimestamptzType() if kind.tz else ice.TimestampType()
    if pa.types.is_timestamp(kind) or (pa.types.is_decimal(kind) and not fits(kind)):
        return ice.StringType()
    if pa.types.is_decimal(kind):
        return ice.DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return ice.FixedType(kind.byte_width)
    if pa.types.is_struct(kind):
        return ice.StructType(*[_column(member, ids) for member in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _iceberg(kind.value_type, ids)
        return ice.ListType(next(ids), element, element_required=False)
    if pa.types.is_map(kind):
        key, value = _iceberg(kind.key_type, ids), _iceberg(kind.item_type, ids)
        return ice.MapType(next(ids), key, next(ids), value, value_required=False)
    raise PermanentError(f"no Iceberg type for the Arrow type {kind}")
