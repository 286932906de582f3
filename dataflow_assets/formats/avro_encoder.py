"""JSON values to Avro: what `avro_columns` reads is written back, and what does not fit is refused.

| Avro | takes |
|---|---|
| int, long | a whole number in its range |
| float, double | a number, or `NaN`, `Infinity`, `-Infinity` |
| bytes, fixed | base64 text |
| union | the first type from which the same value is read, else the first that takes it; text is \
text rather than bytes; null where null is one of its types |
| decimal | a number, or its digits as text, with no more digits than the type has |
| date, time, timestamp | RFC 3339 with as many digits of a second as the type has, or a number |
| uuid, enum | its text |
| duration | ISO 8601 of months, days and seconds, such as P1M2DT3.5S, or base64 text |

A member that is absent has the field's default, else null where the type takes null.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_writer

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.avro_defaults import field_default
from dataflow_assets.formats.avro_json import AvroForms
from dataflow_assets.formats.avro_logical import logical_type
from dataflow_assets.formats.avro_schema import AvroSchema, Schema
from dataflow_assets.formats.avro_values import SIMPLE, Take, enum, logical, same, take_fixed, unfit
from dataflow_assets.records.record import MISSING, NotJson, parse


class AvroEncoder:
    """Writes bodies of one schema; made once per process. Keeps nothing between two bodies."""

    def __init__(self, text: str, *, ignore_unknown: bool = False) -> None:
        """`ignore_unknown`: a member without a field is left out; else it rejects its record.

        Raises ValueError where the text is no Avro schema.
        """
        self._schema = AvroSchema(text)
        self._ignores = ignore_unknown
        self._forms = AvroForms(self._schema)
        self._named: dict[tuple[str, bool], Take] = {}
        self._take = self._taker(self._schema.root)
        self._parsed = parse_schema(self._schema.bare)

    def __call__(self, body: bytes) -> bytes:
        """The value of a JSON body. Raises RejectedRecord where the schema does not take it."""
        value = parse(body)
        if isinstance(value, NotJson):
            raise unfit("not JSON, which a value of a schema is made of")
        out = BytesIO()
        try:
            schemaless_writer(out, self._parsed, self._take(value))
        except RecursionError:
            raise unfit("nested too deeply") from None
        return out.getvalue()

    def _taker(self, schema: Schema, *, exact: bool = False) -> Take:
        """`exact`: only what reads back as the same value is taken."""
        resolved = self._schema.resolve(schema)
        if isinstance(resolved, list):
            return self._union(resolved, exact=exact)
        kind = resolved if isinstance(resolved, str) else resolved["type"]
        if kind == "record":
            return self._record(resolved, exact=exact)
        if kind == "array":
            return self._array(self._taker(resolved["items"], exact=exact))
        if kind == "map":
            return self._map(self._taker(resolved["values"], exact=exact))
        take = _simple(kind, resolved)
        return same(take, self._forms.of(resolved)) if exact else take

    def _record(self, resolved: Any, *, exact: bool) -> Take:
        name = resolved["name"], exact
        if name not in self._named:
            fields: dict[str, tuple[Take, Any]] = {}
            ignores = self._ignores and not exact

            def take(value: Any) -> dict[str, Any]:
                if not isinstance(value, dict):
                    raise unfit("expected an object")
                if not ignores and not value.keys() <= fields.keys():
                    unknown = sorted(value.keys() - fields.keys())
                    raise unfit(f"the schema has no field {', '.join(unknown)}")
                return {key: _member(key, one, value) for key, one in fields.items()}

            self._named[name] = take
            for one in resolved["fields"]:
                fields[one["name"]] = self._taker(one["type"], exact=exact), self._default(one)
        return self._named[name]

    def _default(self, field: Mapping[str, Any]) -> Any:
        if "default" in field:
            return field_default(self._schema, field, _choose)
        resolved = self._schema.resolve(field["type"])
        arms = resolved if isinstance(resolved, list) else [resolved]
        return None if "null" in map(_name, map(self._schema.resolve, arms)) else MISSING

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

    def _union(self, arms: list[Schema], *, exact: bool) -> Take:
        some = [one for one in map(self._schema.resolve, arms) if _name(one) != "null"]
        nullable = len(some) < len(arms)
        some.sort(key=_is_of_bytes)  # almost every text is base64 of something
        takes = [(_name(one), self._taker(one, exact=exact)) for one in some]
        if len(some) > 1 and not exact:
            takes = [(_name(one), self._taker(one, exact=True)) for one in some] + takes

        def take(value: Any) -> Any:
            if value is None and nullable:
                return None
            for name, one in takes:
                try:
                    return name, one(value)
                except RejectedRecord:
                    if len(takes) == 1:
                        raise
            raise unfit("no type of the union takes the value")

        return take


def _simple(kind: str, resolved: Schema) -> Take:
    if name := logical_type(resolved):
        return logical(name, resolved)
    if kind == "enum":
        return enum(frozenset(resolved["symbols"]))
    return take_fixed(resolved["size"]) if kind == "fixed" else SIMPLE[kind]


def _is_of_bytes(schema: Schema) -> bool:
    kind = schema if isinstance(schema, str) else schema["type"]
    return kind in ("bytes", "fixed") and not logical_type(schema)


def _choose(arms: list[Schema], place: int, value: Any) -> Any:
    """A value of a union as fastavro writes it."""
    return _name(arms[place]), value


def _member(key: str, field: tuple[Take, Any], value: Mapping[str, Any]) -> Any:
    take, absent = field
    if key in value:
        return _inside(key, take, value[key])
    if absent is MISSING:
        raise unfit(f"{key}: is missing, and the field has no default")
    return absent


def _inside(key: str, take: Take, value: Any) -> Any:
    try:
        return take(value)
    except RejectedRecord as error:
        between = "" if error.reason.startswith("[") else ": " if ": " not in error.reason else "."
        raise unfit(f"{key}{between}{error.reason}") from None


def _name(schema: Schema) -> str:
    if isinstance(schema, str):
        return schema
    return schema.get("name") or schema["type"]  # type: ignore[no-any-return]
