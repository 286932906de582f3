"""Avro values to Arrow columns, in the types that table sources deliver.

| Avro | Arrow |
|---|---|
| boolean, int, long | bool, int32, int64 |
| float, double | float32, float64 |
| string, bytes | string, binary |
| enum, fixed | string, binary |
| array, record | list, struct |
| map, a union of several types, a record that holds its own kind | JSON text |
| a union with null | the other type |
| logical types | see `avro_logical`; one that does not suit its type is ignored, as Avro asks |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow_assets.contracts import SYSTEM_COLUMNS, Kind, TypeRow
from dataflow_assets.formats import avro_logical
from dataflow_assets.formats.avro_json import texts
from dataflow_assets.formats.avro_logical import Build, Made, logical_type
from dataflow_assets.formats.avro_schema import AvroSchema, Schema, non_null
from dataflow_assets.formats.structs import struct_of

_SIMPLE: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "enum": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}
_JSON_FIELD = Kind.JSON.field("")


@dataclass(frozen=True)
class AvroColumns:
    """The columns of a record's fields."""

    schema: pa.Schema
    builds: tuple[tuple[str, Build], ...]

    @classmethod
    def of(cls, schema: AvroSchema, as_json: frozenset[str] = frozenset()) -> AvroColumns | None:
        """Returns None if the values are not records, or have fields with reserved names.

        `as_json`: fields that are to be JSON, where they can be so at once.
        """
        root = schema.resolve(schema.root)
        if not isinstance(root, dict) or root["type"] != "record":
            return None
        names = [one["name"] for one in root["fields"]]
        if not set(SYSTEM_COLUMNS).isdisjoint(names) or len(set(names)) < len(names):
            return None
        columns = [
            (_JSON_FIELD.with_name(one["name"]), texts(schema, one["type"]))
            if one["name"] in as_json and schema.is_plain(one["type"])
            else _column(schema, one["name"], one["type"])
            for one in root["fields"]
        ]
        builds = tuple((field.name, build) for field, build in columns)
        return cls(pa.schema([field for field, _ in columns]), builds)

    def build(self, records: Sequence[dict[str, Any]]) -> pa.RecordBatch:
        """Raises ValueError or an error of Arrow where a value is none of its type."""
        arrays = [build([one[name] for one in records]) for name, build in self.builds]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array(records, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _column(schema: AvroSchema, name: str, kind: Schema) -> Made:
    resolved = schema.resolve(kind)
    if isinstance(resolved, list):
        some = non_null(resolved)
        if len(some) == 1:
            return _column(schema, name, some[0])
        if not some:
            return _column(schema, name, "null")
    if schema.is_json(kind):
        return Kind.JSON.field(name), texts(schema, kind)
    if isinstance(resolved, dict) and logical_type(resolved):
        return avro_logical.column(name, resolved)
    if isinstance(resolved, dict) and resolved["type"] == "record":
        return _record(schema, name, resolved)
    if isinstance(resolved, dict) and resolved["type"] == "array":
        return _array(schema, name, resolved)
    simple = _SIMPLE[resolved if isinstance(resolved, str) else resolved["type"]]
    return pa.field(name, simple), lambda values: pa.array(values, simple)


def _record(schema: AvroSchema, name: str, resolved: Any) -> Made:
    members = [_column(schema, one["name"], one["type"]) for one in resolved["fields"]]
    fields = [field for field, _ in members]

    def build(values: Sequence[Any]) -> pa.Array:
        null = None
        if None in values:
            null = pa.array([one is None for one in values], pa.bool_())
        if not fields:
            return pa.array(values, pa.struct([]))
        children = [
            inner([None if one is None else one[field.name] for one in values])
            for field, inner in members
        ]
        return struct_of(children, fields, null)

    return pa.field(name, pa.struct(fields)), build


def _array(schema: AvroSchema, name: str, resolved: Any) -> Made:
    item, inner = _column(schema, "item", resolved["items"])
    kind = pa.list_(item)

    def build(values: Sequence[Any]) -> pa.Array:
        lengths = np.fromiter((len(one or ()) for one in values), np.int32, len(values))
        offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
        items = inner(list(chain.from_iterable(one or () for one in values)))
        null = pa.array([one is None for one in values], pa.bool_()) if None in values else None
        return pa.ListArray.from_arrays(pa.array(offsets), items, type=kind, mask=null)

    return pa.field(name, kind), build


def types() -> tuple[TypeRow, ...]:
    record = '{"type": "record", "name": "r", "fields": [%s]}'
    rows = []
    for shown, schema, note in _SHOWN:
        text = record % f'{{"name": "a", "type": {schema}}}'
        columns = AvroColumns.of(AvroSchema(text))
        assert columns is not None  # noqa: S101 - it is a record
        rows.append(TypeRow(shown, columns.schema.field(0), note))
    return tuple(rows)


def _logical(base: str, name: str, more: str = "") -> str:
    return f'{{"type": "{base}", "logicalType": "{name}"{more}}}'


_FIXED = '{"type": "fixed", "name": "f", "size": %d%s}'
_LIST = '{"type": "record", "name": "l", "fields": [{"name": "next", "type": ["null", "l"]}]}'
_DIGITS = ', "precision": 18, "scale": 4'
_SHOWN: tuple[tuple[str, str, str], ...] = (
    *((name, f'"{name}"', "") for name in ("boolean", "int", "long", "float", "double")),
    *((name, f'"{name}"', "") for name in ("string", "bytes")),
    ("enum", '{"type": "enum", "name": "e", "symbols": ["A"]}', ""),
    ("fixed", _FIXED % (4, ""), ""),
    ("array", '{"type": "array", "items": "long"}', ""),
    ("record", '{"type": "record", "name": "i", "fields": [{"name": "a", "type": "long"}]}', ""),
    ("map", '{"type": "map", "values": "long"}', "a JSON object"),
    ("union of null and a type", '["null", "long"]', "as the other type; null is null"),
    ("union of several types", '["null", "long", "string"]', "the value itself, as JSON"),
    ("record that holds its own kind", _LIST, "a JSON object"),
    ("decimal(18, 4)", _logical("bytes", "decimal", _DIGITS), "of bytes or fixed"),
    ("uuid", _logical("string", "uuid"), "of string or fixed"),
    ("date", _logical("int", "date"), ""),
    ("time-millis, time-micros", _logical("long", "time-micros"), ""),
    ("timestamp-millis, timestamp-micros", _logical("long", "timestamp-micros"), ""),
    ("timestamp-nanos", _logical("long", "timestamp-nanos"), ""),
    ("local-timestamp-millis, -micros", _logical("long", "local-timestamp-micros"), ""),
    ("local-timestamp-nanos", _logical("long", "local-timestamp-nanos"), ""),
    ("duration", _FIXED % (12, ', "logicalType": "duration"'), "ISO 8601, such as P1M2DT3.500S"),
)
