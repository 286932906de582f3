"""A declared schema: as Iceberg writes it, with its field ids, and as that of Avro records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from dataflow_assets.connectors.iceberg.options import OWN_IDS, RECORD_TIME

INSIDE = {"struct": None, "list": ("element",), "map": ("key", "value")}
"""By type: the names of the fields inside; None for any."""
_AVRO: dict[str, Any] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros"},
    "uuid": {"type": "string", "logicalType": "uuid"},
}
PRIMITIVES = (*_AVRO, "decimal(p, s)", "fixed[n]", *INSIDE)
_TIMES = frozenset({"timestamp", "timestamptz"})
_DATES = _TIMES | {"date"}
_EXACT = frozenset({"int", "long", "decimal", "string", "binary"})
_FITS = {
    "year": _DATES,
    "month": _DATES,
    "day": _DATES,
    "hour": _TIMES,
    "truncate": _EXACT,
    "bucket": _EXACT | _DATES | {"time", "uuid", "fixed"},
}
_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")
_FIXED = re.compile(r"fixed\[([1-9]\d{0,5})\]")
_MOST_DIGITS = 38
_ELSEWHERE = {
    "text": "string",
    "varchar": "string",
    "json": "string",
    "bool": "boolean",
    "integer": "int",
    "int32": "int",
    "int64": "long",
    "bigint": "long",
    "float64": "double",
    "number": "double, or decimal(p, s)",
    "numeric": "decimal(p, s)",
    "bytes": "binary",
    "datetime": "timestamp",
    "array": "list",
    "record": "struct",
    "object": "struct",
}
"""Types of other systems, and what is written here."""


class DeclaredField(Protocol):
    """A column, or a field inside one, as the model has it."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> int: ...

    @property
    def type(self) -> str: ...

    @property
    def optional(self) -> bool: ...

    @property
    def fields(self) -> Sequence[DeclaredField]: ...


Declared = Sequence[DeclaredField]


def problem(kind: str) -> str:
    """Returns what is wrong with the name of a type; empty where it is one."""
    if decimal := _DECIMAL.fullmatch(kind):
        precision, scale = map(int, decimal.groups())
        fits = 1 <= precision <= _MOST_DIGITS and scale <= precision
        return "" if fits else f"must have 1 to {_MOST_DIGITS} digits, and no more behind the point"
    is_known = kind in _AVRO or kind in INSIDE or _FIXED.fullmatch(kind)
    return "" if is_known else "unknown type"


def usual(kind: str) -> str:
    """Returns what another system's name of a type is called here; empty where nothing is known."""
    return _ELSEWHERE.get(kind.lower(), "")


def only_of_columns(kind: str) -> bool:
    """Returns whether a type cannot be inside a struct, list or map."""
    return kind == "uuid" or bool(_FIXED.fullmatch(kind))


def partition_problem(transform: str, kind: str) -> str:
    """Why a column of this type cannot be partitioned so; empty where it can."""
    base = kind.partition("(")[0].partition("[")[0]
    fits = base not in INSIDE if transform == "identity" else base in _FITS[transform]
    return "" if fits else f"{transform} cannot take a column of type {kind}"


def iceberg(fields: Declared, key: Sequence[str] = (), *, record_time: bool) -> str:
    """Iceberg's JSON of a schema.

    Args:
        fields: the columns.
        key: the columns that rows are matched by.
        record_time: whether there is one more column, for the records' own time.
    """
    columns = [_iceberg_field(one) for one in fields]
    if record_time:
        columns.append(_iceberg(OWN_IDS, RECORD_TIME, "timestamptz", required=False))
    schema: dict[str, Any] = {"type": "struct", "schema-id": 0, "fields": columns}
    if key:
        schema["identifier-field-ids"] = [one.id for one in fields if one.name in key]
    return json.dumps(schema)


def _iceberg_field(one: DeclaredField) -> dict[str, Any]:
    return _iceberg(one.id, one.name, _iceberg_type(one), required=not one.optional)


def _iceberg(identity: int, name: str, kind: Any, *, required: bool) -> dict[str, Any]:
    return {"id": identity, "name": name, "required": required, "type": kind}


def _iceberg_type(one: DeclaredField) -> Any:
    if one.type == "struct":
        return {"type": "struct", "fields": [_iceberg_field(inner) for inner in one.fields]}
    if one.type == "list":
        return {"type": "list", **_inner(one.fields[0], "element")}
    if one.type == "map":
        key, value = sorted(one.fields, key=lambda inner: inner.name)
        key_type = _inner(key, "key")
        return {"type": "map", **_inner(value, "value"), "key-id": key.id, "key": key_type["key"]}
    return one.type


def _inner(one: DeclaredField, name: str) -> dict[str, Any]:
    kind = _iceberg_type(one)
    return {f"{name}-id": one.id, name: kind, f"{name}-required": not one.optional}


def avro(fields: Declared) -> str:
    """The Avro schema of the records: the same fields in the same order."""
    return json.dumps(_avro_record("row", fields))


def _avro_record(name: str, fields: Declared) -> dict[str, Any]:
    inner = [{"name": one.name, "type": _avro_type(one)} for one in fields]
    return {"type": "record", "name": name, "fields": inner}


def _avro_type(one: DeclaredField) -> Any:
    kind = _avro_value(one)
    return ["null", kind] if one.optional else kind


def _avro_value(one: DeclaredField) -> Any:
    if one.type == "struct":
        return _avro_record(f"r{one.id}", one.fields)
    if one.type == "list":
        return {"type": "array", "items": _avro_type(one.fields[0])}
    if one.type == "map":
        (value,) = (inner for inner in one.fields if inner.name == "value")
        return {"type": "map", "values": _avro_type(value)}
    if decimal := _DECIMAL.fullmatch(one.type):
        precision, scale = map(int, decimal.groups())
        digits = {"precision": precision, "scale": scale}
        return {"type": "bytes", "logicalType": "decimal", **digits}
    if fixed := _FIXED.fullmatch(one.type):
        return {"type": "fixed", "name": f"f{one.id}", "size": int(fixed[1])}
    return _AVRO[one.type]


def walk(
    fields: Declared, at: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], DeclaredField, int]]:
    """Every field with its place in the file, and how many fields it is inside of."""
    for index, one in enumerate(fields):
        here = (*at, "fields", index)
        yield here, one, 0
        yield from ((place, inner, depth + 1) for place, inner, depth in walk(one.fields, here))
