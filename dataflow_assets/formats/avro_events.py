"""Debezium's change events in Avro: rows whose values are of Debezium's own types.

AvroConverter has no logical type for them. It writes the type's name, `connect.name`, where
JsonConverter writes it into the schema of a message; the values are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dataflow_assets.formats.avro_schema import AvroSchema, Schema, non_null
from dataflow_assets.records.connect_times import Convert
from dataflow_assets.records.connect_types import convert_at, debezium_type

_SIDES = ("before", "after")


def row_types(schema: AvroSchema) -> Mapping[str, Convert]:
    """Returns conversions by field of a row; none where values are not change events.

    Called once for each schema. Elements of arrays are left as they are: Debezium writes what it
    does not know of an array as elements, which are of the column's type in no other sense.
    """
    fields = _fields(schema, schema.root)
    rows = [_types(schema, fields[side]) for side in _SIDES if side in fields and "op" in fields]
    return max(rows, key=len, default={})


def key_types(schema: AvroSchema) -> Mapping[str, Convert]:
    """Returns the conversions for the fields of a key, which are those of the row itself."""
    return _types(schema, schema.root)


def event_with_types(
    event: dict[str, Any], types: Mapping[str, Convert], but: Collection[str]
) -> dict[str, Any]:
    """An event with the values of its rows converted, but for some fields.

    Called inside tasks for each event. Raises RejectedRecord where a value is none of its type.
    """
    rows = {side: event[side] for side in _SIDES if isinstance(event.get(side), dict)}
    return event | {side: with_types(row, types, but, f"{side}.") for side, row in rows.items()}


def with_types(
    row: dict[str, Any], types: Mapping[str, Convert], but: Collection[str], path: str = ""
) -> dict[str, Any]:
    """Converts the fields of a row or of a key; `path` leads to it."""
    return row | {
        name: convert_at(f"{path}{name}", convert, row[name])
        for name, convert in types.items()
        if name in row and name not in but
    }


def _types(schema: AvroSchema, kind: Schema) -> Mapping[str, Convert]:
    fields = _fields(schema, kind)
    kinds = {name: debezium_type(_only(schema, inner)) for name, inner in fields.items()}
    return {name: convert for name, convert in kinds.items() if convert is not None}


def _fields(schema: AvroSchema, kind: Schema) -> Mapping[str, Schema]:
    inner = _only(schema, kind)
    fields = inner.get("fields", ()) if isinstance(inner, dict) else ()
    return {one["name"]: one["type"] for one in fields}


def _only(schema: AvroSchema, kind: Schema) -> Schema:
    resolved = schema.resolve(kind)
    some = non_null(resolved) if isinstance(resolved, list) else [resolved]
    return schema.resolve(some[0]) if len(some) == 1 else resolved
