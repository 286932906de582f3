"""Defaults of Avro fields: JSON in a schema, where bytes are written as the characters 0 to 255."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataflow_assets.formats.avro_schema import AvroSchema, Schema

Choice = Callable[[list[Schema], int, Any], Any]
"""A value as that of a type of a union: of these types, the one at this place."""


def default(schema: AvroSchema, kind: Schema, value: Any, choice: Choice) -> Any:
    """A default as a message of the type would hold it: numbers, bytes, texts.

    Called once for each field that has a default. Raises ValueError where it is none of the type.
    """
    resolved = schema.resolve(kind)
    if isinstance(resolved, list):
        return _of_union(schema, resolved, value, choice)
    name = resolved if isinstance(resolved, str) else resolved["type"]
    if name == "record":
        return _of_record(schema, resolved, value, choice)
    if name == "array" and isinstance(value, list):
        return [default(schema, resolved["items"], one, choice) for one in value]
    if name == "map" and isinstance(value, dict):
        return {key: default(schema, resolved["values"], one, choice) for key, one in value.items()}
    return _simple(name, resolved, value)


def field_default(schema: AvroSchema, field: Any, choice: Choice) -> Any:
    """The default of a field that has one. Raises ValueError that names the field."""
    try:
        return default(schema, field["type"], field["default"], choice)
    except ValueError as error:
        raise ValueError(f"field {field['name']}: {error}") from None


def _of_union(schema: AvroSchema, arms: list[Schema], value: Any, choice: Choice) -> Any:
    for place, arm in enumerate(arms):
        try:
            filled = default(schema, arm, value, choice)
        except ValueError:
            continue
        return None if filled is None else choice(arms, place, filled)
    raise ValueError(f"the default {_show(value)} is of no type of the union")


def _of_record(schema: AvroSchema, resolved: Any, value: Any, choice: Choice) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _unfit(value, resolved["name"])
    members = {}
    for one in resolved["fields"]:
        if one["name"] not in value and "default" not in one:
            raise ValueError(f"the default {_show(value)} has no {one['name']}")
        member = value[one["name"]] if one["name"] in value else one["default"]
        members[one["name"]] = default(schema, one["type"], member, choice)
    return members


def _simple(name: str, resolved: Schema, value: Any) -> Any:
    if name in ("bytes", "fixed") and isinstance(value, str):
        return _bytes(name, resolved, value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in ("float", "double") and is_number:
        return float(value)
    is_whole = is_number and isinstance(value, int)
    fits = {
        "null": value is None,
        "boolean": isinstance(value, bool),
        "int": is_whole and -(2**31) <= value < 2**31,
        "long": is_whole and -(2**63) <= value < 2**63,
        "string": isinstance(value, str),
        "enum": name == "enum" and value in resolved["symbols"],
    }
    if not fits.get(name):
        raise _unfit(value, name)
    return value


def _bytes(name: str, resolved: Schema, value: str) -> bytes:
    try:
        raw = value.encode("latin-1")
    except UnicodeEncodeError:
        raise _unfit(value, name) from None
    if name == "fixed" and len(raw) != resolved["size"]:
        raise ValueError(
            f"the default {_show(value)} has {len(raw)} bytes, and the type {resolved['size']}"
        )
    return raw


def _unfit(value: Any, name: str) -> ValueError:
    return ValueError(f"the default {_show(value)} is no {name}")


def _show(value: Any) -> str:
    return repr(value)[:60]
