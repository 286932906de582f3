"""JSON values to Avro: what `avro_columns` reads is written back, and what does not fit is refused.

| Avro | takes |
|---|---|
| int, long | a whole number in its range |
| float, double | a number, or `NaN`, `Infinity`, `-Infinity` |
| bytes, fixed | base64 text |
| union | of the types that take the value, the first that loses nothing; null where it is one |
| decimal | a number, or its digits as text, with no more digits than the type has |
| date, time, timestamp | RFC 3339 with as many digits of a second as the type has, or a number |
| uuid, enum | its text |

A member that is absent has the field's default, else null where the type takes null.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any

import numpy as np
from fastavro import parse_schema, schemaless_writer

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.avro_logical import logical_type
from dataflow_assets.formats.avro_schema import AvroSchema, Schema
from dataflow_assets.formats.avro_values import SIMPLE, Take, enum, fixed, logical, unfit
from dataflow_assets.records.record import MISSING, NotJson, parse


class AvroEncoder:
    """Writes bodies of one schema; made once per process. Keeps nothing between two bodies."""

    def __init__(self, text: str, *, ignore_unknown: bool = False) -> None:
        """`ignore_unknown`: a member without a field is left out; else it rejects its record.

        Raises ValueError where the text is no Avro schema.
        """
        self._schema = AvroSchema(text)
        self._ignores = ignore_unknown
        self._named: dict[str, Take] = {}
        self._take = self._made(self._schema.root)
        self._parsed = parse_schema(self._schema.bare)

    def __call__(self, body: bytes) -> bytes:
        """The value of a JSON body. Raises RejectedRecord where the schema does not take it."""
        found = parse(body)
        if isinstance(found, NotJson):
            raise unfit("not JSON, which a value of a schema is made of")
        out = BytesIO()
        try:
            schemaless_writer(out, self._parsed, self._take(found))
        except RecursionError:
            raise unfit("nested too deeply") from None
        return out.getvalue()

    def _made(self, schema: Schema) -> Take:
        found = self._schema.resolved(schema)
        if isinstance(found, list):
            return self._union(found)
        if isinstance(found, str):
            return SIMPLE[found]
        if name := logical_type(found):
            return logical(name, found)
        kind = found["type"]
        if kind == "record":
            return self._record(found)
        if kind == "array":
            return self._array(self._made(found["items"]))
        if kind == "map":
            return self._map(self._made(found["values"]))
        if kind == "enum":
            return enum(frozenset(found["symbols"]))
        return fixed(found["size"]) if kind == "fixed" else SIMPLE[kind]

    def _record(self, found: Any) -> Take:
        name = found["name"]
        if name not in self._named:
            fields: dict[str, tuple[Take, Any]] = {}
            ignores = self._ignores

            def take(value: Any) -> dict[str, Any]:
                if not isinstance(value, dict):
                    raise unfit("expected an object")
                if not ignores and not value.keys() <= fields.keys():
                    unknown = sorted(value.keys() - fields.keys())
                    raise unfit(f"the schema has no field {', '.join(unknown)}")
                return {key: _member(key, one, value) for key, one in fields.items()}

            self._named[name] = take
            for one in found["fields"]:
                fields[one["name"]] = self._made(one["type"]), self._absent(one)
        return self._named[name]

    def _absent(self, field: Mapping[str, Any]) -> Any:
        """What a field has whose member is absent; MISSING: it must be there."""
        found = self._schema.resolved(field["type"])
        arms = found if isinstance(found, list) else [found]
        if "default" in field:
            return _of_default(field["default"], self._first(arms[0]), self._first)
        return None if "null" in map(_name, map(self._schema.resolved, arms)) else MISSING

    def _first(self, schema: Schema) -> Schema:
        found = self._schema.resolved(schema)
        return self._first(found[0]) if isinstance(found, list) else found

    def _array(self, item: Take) -> Take:
        def take(value: Any) -> list[Any]:
            if not isinstance(value, list):
                raise unfit("expected an array")
            return [_inside(f"[{index}]", item, one) for index, one in enumerate(value)]

        return take

    def _map(self, item: Take) -> Take:
        def take(value: Any) -> dict[str, Any]:
            if not isinstance(value, dict):
                raise unfit("expected an object")
            return {key: _inside(key, item, one) for key, one in value.items()}

        return take

    def _union(self, arms: list[Schema]) -> Take:
        resolved = [self._schema.resolved(one) for one in arms]
        takes = [(one, _name(one), self._made(one)) for one in resolved if _name(one) != "null"]
        nullable = len(takes) < len(arms)

        def take(value: Any) -> Any:
            if value is None and nullable:
                return None
            for _, name, one in sorted(takes, key=lambda arm: _loss(value, arm[0], takes)):
                try:
                    return name, one(value)
                except RejectedRecord:
                    if len(takes) == 1:
                        raise
            raise unfit("no type of the union takes the value")

        return take


def _member(key: str, field: tuple[Take, Any], value: Mapping[str, Any]) -> Any:
    take, absent = field
    if key in value:
        return _inside(key, take, value[key])
    if absent is MISSING:
        raise unfit(f"{key}: is missing, and the field has no default")
    return _inside(key, take, absent)


def _inside(key: str, take: Take, value: Any) -> Any:
    try:
        return take(value)
    except RejectedRecord as error:
        between = "" if error.reason.startswith("[") else ": " if ": " not in error.reason else "."
        raise unfit(f"{key}{between}{error.reason}") from None


def _of_default(value: Any, schema: Schema, inner: Callable[[Schema], Schema]) -> Any:
    """A default as JSON bodies have their values: fractions are exact, bytes are base64.

    `inner`: what a type inside stands for; of a union the first one.
    """
    if isinstance(value, float):
        return Decimal(repr(value))
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(value, list):
        return [_of_default(one, inner(schema["items"]), inner) for one in value]
    if isinstance(value, dict) and kind == "map":
        return {key: _of_default(one, inner(schema["values"]), inner) for key, one in value.items()}
    if isinstance(value, dict):
        kinds = {one["name"]: inner(one["type"]) for one in schema["fields"]}
        return {key: _of_default(one, kinds[key], inner) for key, one in value.items()}
    if kind not in ("bytes", "fixed") or not isinstance(value, str):
        return value
    raw = value.encode("latin-1")  # so Avro writes bytes in a schema
    if logical_type(schema) == "decimal":
        return Decimal(f"{int.from_bytes(raw, 'big', signed=True)}E-{schema.get('scale', 0)}")
    return base64.b64encode(raw).decode()


def _loss(value: Any, arm: Schema, arms: Sequence[tuple[Schema, str, Take]]) -> int:
    """How much of a value a type of a union would lose or bend; the least comes first."""
    kind = arm if isinstance(arm, str) else arm["type"]
    if isinstance(value, dict) and kind == "record":
        return len(value.keys() - {one["name"] for one in arm["fields"]})
    if isinstance(value, str) and kind in ("bytes", "fixed") and not logical_type(arm):
        return int(any(name == "string" for _, name, _ in arms))
    if kind == "float" and isinstance(value, int | Decimal) and not isinstance(value, bool):
        return int(Decimal(float(np.float32(float(value)))) != value)
    return 0


def _name(schema: Schema) -> str:
    if isinstance(schema, str):
        return schema
    return schema.get("name") or schema["type"]  # type: ignore[no-any-return]
