"""Values of logical types where they are part of JSON: fastavro reads them by these rules.

In a union only the decoder knows which of the types a value has. So the schemas that it reads name
types of our own (`marked`), whose values carry their type with them. Each is also what a column is
built from, for a type that is part of JSON in one place and a column in another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

from fastavro.read import LOGICAL_READERS

from dataflow_assets.formats.avro_logical import logical_type

_OURS = "dataflow-"
_EXACT = Context(prec=1_000)


class Short(float):
    """A fraction of 32 bits."""


class Nanos(int):
    """Nanoseconds since 1970."""


class Duration(bytes):
    """Months, days and milliseconds."""


def marked(schema: Any) -> dict[str, Any]:
    """What a schema needs beside its type for its values to be read so; empty for most types."""
    if schema == "float":
        return {"logicalType": f"{_OURS}float"}
    name = logical_type(schema)
    if name is None:
        return {"logicalType": f"{_OURS}float"} if schema.get("type") == "float" else {}
    if name == "decimal":
        digits = {key: schema[key] for key in ("precision", "scale") if key in schema}
        return {"logicalType": f"{_OURS}decimal", **digits}
    if name.endswith("nanos"):
        return {"logicalType": f"{_OURS}nanos"}
    if name == "duration" or (name == "uuid" and schema["type"] == "fixed"):
        return {"logicalType": f"{_OURS}{name}"}
    return {"logicalType": name}


def _decimal(value: bytes, schema: Mapping[str, Any]) -> Decimal:
    number = int.from_bytes(value, "big", signed=True)
    if abs(number) >= 10 ** schema["precision"]:
        raise ValueError(f"a decimal of more than {schema['precision']} digits")
    return Decimal(number).scaleb(-schema.get("scale", 0), _EXACT)


_RULES: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "float-float": lambda value, _: Short(value),
    "long-nanos": lambda value, _: Nanos(value),
    "fixed-duration": lambda value, _: Duration(value),
    "fixed-uuid": lambda value, _: UUID(bytes=value),
    "bytes-decimal": _decimal,
    "fixed-decimal": _decimal,
}


def _reader(rule: Callable[[Any, Mapping[str, Any]], Any]) -> Callable[..., Any]:
    def read(value: Any, writer: Any = None, reader: Any = None) -> Any:  # noqa: ARG001 - fastavro's
        return rule(value, writer or {})

    return read


for _name, _rule in _RULES.items():
    _kind, _, _logical = _name.partition("-")
    LOGICAL_READERS[f"{_kind}-{_OURS}{_logical}"] = _reader(_rule)


def default(value: Any, schema: Any, named: Mapping[str, Any]) -> Any:
    """A default of a schema that fastavro reads, as it hands out values of the type.

    fastavro gives the default as it is written in the schema, where bytes are text.

    Args:
        value: as it is written.
        schema: of the field.
        named: the schema's types with a name.
    """
    if isinstance(schema, list):
        return default(value, schema[0], named)
    if isinstance(schema, str):
        if schema in named:
            return default(value, named[schema], named)
        return value.encode("latin-1") if schema == "bytes" and isinstance(value, str) else value
    kind = schema["type"]
    if kind == "record":
        return {
            one["name"]: default(value.get(one["name"], one.get("default")), one["type"], named)
            for one in schema["fields"]
        }
    if kind == "array":
        return [default(one, schema["items"], named) for one in value]
    if kind == "map":
        return {key: default(one, schema["values"], named) for key, one in value.items()}
    if not isinstance(kind, str):
        return default(value, kind, named)
    raw = value.encode("latin-1") if kind in ("bytes", "fixed") else value
    reads = LOGICAL_READERS.get(f"{kind}-{schema.get('logicalType')}")
    return raw if reads is None else reads(raw, schema, None)
