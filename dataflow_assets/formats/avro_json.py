"""Avro values as JSON, by their schema: in maps, unions of several types, and what is no record.

Values come from fastavro as messages hold them (`AvroSchema.raw`): numbers, bytes, texts. The same
type has the same form here as where it is a column that becomes JSON (`formats/rows.py`).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dataflow_assets.formats import avro_logical
from dataflow_assets.formats.avro_logical import Build, logical_type
from dataflow_assets.formats.avro_schema import ARM, AvroSchema, Schema, non_null
from dataflow_assets.formats.rows import cells, fraction, short_fraction
from dataflow_assets.records.connect_times import iso_day, iso_moment
from dataflow_assets.records.record import exact_json

Form = Callable[[Any], Any]
"""A value, never null, as the JSON encoder takes it. Raises ValueError where it is none."""

_UNITS = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}


def texts(schema: AvroSchema, kind: Schema) -> Build:
    """Returns what makes JSON texts of values of a type."""
    form = AvroForms(schema).of(kind)
    if form is None:
        return _texts
    inner = form
    return lambda values: _texts([None if one is None else inner(one) for one in values])


def whole_texts(schema: AvroSchema) -> Callable[[Sequence[Any]], pa.Array]:
    """Returns what makes bodies of values of the schema, `null` of null."""
    form = AvroForms(schema).of(schema.root) or (lambda value: value)

    def build(values: Sequence[Any]) -> pa.Array:
        json_values = [exact_json(None if one is None else form(one)) for one in values]
        return pa.array(json_values, pa.binary())

    return build


class AvroForms:
    """Converts values of a schema's types to their JSON forms."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._named: dict[str, Form] = {}

    def of(self, kind: Schema) -> Form | None:
        """Returns None where a value is valid in JSON as it is."""
        if self._schema.is_plain(kind):
            return None
        resolved = self._schema.resolve(kind)
        if isinstance(resolved, list):
            return self._union(resolved)
        if isinstance(resolved, dict) and logical_type(resolved):
            return _logical(resolved)
        name = resolved if isinstance(resolved, str) else resolved["type"]
        if name in ("record", "error"):
            return self._record(resolved)
        if name == "array":
            item = self.of(resolved["items"])
            return lambda values: [_member(item, one) for one in values]
        if name == "map":
            return _members(self.of(resolved["values"]))
        return _SIMPLE.get(name)

    def _union(self, arms: Sequence[Schema]) -> Form | None:
        some = non_null(arms)
        if len(some) == 1:
            return self.of(some[0])
        forms = {f"{ARM}{place}": self.of(one) for place, one in enumerate(arms)}

        def form(value: Mapping[str, Any]) -> Any:
            ((name, inner),) = value.items()
            arm = forms[name]
            return inner if arm is None else arm(inner)

        return form

    def _record(self, resolved: Any) -> Form:
        name = resolved["name"]
        if name not in self._named:
            forms: dict[str, Form | None] = {}

            def form(value: Mapping[str, Any]) -> dict[str, Any]:
                return {key: _member(one, value[key]) for key, one in forms.items()}

            self._named[name] = form
            for one in resolved["fields"]:
                forms[one["name"]] = self.of(one["type"])
        return self._named[name]


def _member(form: Form | None, value: Any) -> Any:
    return value if form is None or value is None else form(value)


def _members(item: Form | None) -> Form:
    return lambda values: {key: _member(item, one) for key, one in values.items()}


def _texts(values: Sequence[Any]) -> pa.Array:
    json_values = [None if one is None else exact_json(one).decode() for one in values]
    return pa.array(json_values, pa.string())


def _logical(schema: Mapping[str, Any]) -> Form:
    field, build = avro_logical.column("", schema)

    def as_column(value: Any) -> Any:
        return cells(build([value]), field)[0]

    name = logical_type(schema) or ""
    if name == "date":
        return lambda days: iso_day(days) or as_column(days)
    if "timestamp-" in name:
        unit = _UNITS[name.rpartition("-")[2]]
        return lambda number: iso_moment(number, unit) or as_column(number)
    if name == "decimal" and pa.types.is_decimal(field.type):
        return _decimal(field.type.precision, field.type.scale)
    return as_column


def _decimal(precision: int, scale: int) -> Form:
    most = 10**precision

    def form(value: bytes) -> Decimal:
        number = int.from_bytes(value, "big", signed=True)
        if abs(number) >= most:
            raise ValueError(f"a decimal of more than {precision} digits")
        return Decimal(f"{number}E-{scale}")

    return form


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


_SIMPLE: dict[str, Form] = {
    "float": short_fraction,
    "double": fraction,
    "bytes": _base64,
    "fixed": _base64,
}
