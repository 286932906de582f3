"""Avro records as Iceberg columns: types that take every value of the record's fields.

| Avro | Iceberg |
|---|---|
| boolean, int, long, float, double, string | the same |
| bytes | binary |
| enum | string |
| record, array, map | struct, list, map |
| a union with null | the other type, optional |
| a union of several types, a record that holds its own kind or nothing | string, JSON text |
| decimal, uuid, fixed | decimal, uuid, fixed; inside of a column uuid is string and fixed binary |
| a decimal of more than 38 digits | string, its digits |
| date, time-millis, time-micros | date, time |
| timestamp-millis, timestamp-micros | timestamptz; local ones timestamp |
| timestamps in nanoseconds, duration | string |
"""

from __future__ import annotations

from typing import Any

from pyiceberg import types as ice

from dataflow_assets.contracts import Kind
from dataflow_assets.formats.avro_logical import logical_type
from dataflow_assets.formats.avro_schema import AvroSchema, Schema, is_null, non_null
from dataflow_assets.sdk.types.comments import COMMENTS

NO_ID = 0
"""Of all fields: who makes a table of them gives them ids."""
_SIMPLE: dict[str, ice.IcebergType] = {
    "boolean": ice.BooleanType(),
    "int": ice.IntegerType(),
    "long": ice.LongType(),
    "float": ice.FloatType(),
    "double": ice.DoubleType(),
    "string": ice.StringType(),
    "enum": ice.StringType(),
    "null": ice.StringType(),
    "bytes": ice.BinaryType(),
}
_LOGICAL: dict[str, ice.IcebergType] = {
    "date": ice.DateType(),
    "time-millis": ice.TimeType(),
    "time-micros": ice.TimeType(),
    "timestamp-millis": ice.TimestamptzType(),
    "timestamp-micros": ice.TimestamptzType(),
    "local-timestamp-millis": ice.TimestampType(),
    "local-timestamp-micros": ice.TimestampType(),
}
_MOST_DIGITS = 38  # of Iceberg's decimals
Typed = tuple[ice.IcebergType, str | None]
"""A type, and the comment of a string column that holds JSON or digits."""


def columns(schema: AvroSchema) -> list[ice.NestedField]:
    """The columns of a record's fields, in their order, without ids.

    Called on the driver, once for each version of a schema that a table has not seen.

    Raises:
        ValueError where the schema is not that of a record with fields.
    """
    optional = schema.optional_record()
    root = schema.resolve(optional[0].root if optional else schema.root)
    if not isinstance(root, dict) or root["type"] != "record" or not root["fields"]:
        raise ValueError("it is not the schema of a record with fields")
    return [_field(schema, one["name"], one["type"], inside=False) for one in root["fields"]]


def _field(schema: AvroSchema, name: str, kind: Schema, *, inside: bool) -> ice.NestedField:
    resolved = schema.resolve(kind)
    nulls = any(map(is_null, resolved)) if isinstance(resolved, list) else is_null(resolved)
    type_, doc = _column_type(schema, kind, inside=inside)
    return ice.NestedField(NO_ID, name, type_, doc=doc, required=not nulls)


def _column_type(schema: AvroSchema, kind: Schema, *, inside: bool) -> Typed:
    resolved = schema.resolve(kind)
    if isinstance(resolved, list):
        some = non_null(resolved)
        if len(some) > 1:
            return ice.StringType(), COMMENTS[Kind.JSON]
        return _column_type(schema, some[0] if some else "null", inside=inside)
    if isinstance(resolved, str):
        return _SIMPLE[resolved], None
    if logical_type(resolved):
        return _logical(resolved, inside=inside)
    if resolved["type"] == "fixed":
        return (ice.BinaryType() if inside else ice.FixedType(resolved["size"])), None
    return _compound(schema, resolved) or (ice.StringType(), COMMENTS[Kind.JSON])


def _logical(found: Any, *, inside: bool) -> Typed:
    name = logical_type(found) or ""
    if name == "decimal" and found["precision"] <= _MOST_DIGITS:
        return ice.DecimalType(found["precision"], found.get("scale", 0)), None
    if name == "decimal":
        return ice.StringType(), COMMENTS[Kind.NUMERIC]
    if name == "uuid" and not inside:
        return ice.UUIDType(), None
    return _LOGICAL.get(name, ice.StringType()), None


def _compound(schema: AvroSchema, found: Any) -> Typed | None:
    if found["type"] == "record":
        if found.get("name") in schema.recursive or not found["fields"]:
            return None
        members = [_field(schema, o["name"], o["type"], inside=True) for o in found["fields"]]
        return ice.StructType(*members), None
    if found["type"] not in ("array", "map"):
        return _SIMPLE[found["type"]], None
    inner = _field(schema, "", found.get("items", found.get("values")), inside=True)
    if inner.doc is not None:
        return None
    if found["type"] == "array":
        return ice.ListType(NO_ID, inner.field_type, element_required=inner.required), None
    key, value = ice.StringType(), inner.field_type
    return ice.MapType(NO_ID, key, NO_ID, value, value_required=inner.required), None
