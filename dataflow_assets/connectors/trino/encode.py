"""Arrow columns -> JSON that a statement carries, and the SQL that makes values of it.

Every value travels as text and is cast to the column's own type by Trino, so that no digit is lost
on the way through JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.trino.client import literal
from dataflow_assets.connectors.trino.type_names import TrinoType
from dataflow_assets.formats.rows import moments

_OF_DAY = ("time", "time with time zone")
_encode = msgspec.json.Encoder().encode


def lines(rows: pa.RecordBatch, names: Sequence[str], *more: Sequence[str]) -> list[bytes]:
    """Each row as a JSON array of the named columns' values.

    Called inside tasks, for each chunk.

    Args:
        rows: typed rows.
        names: of the columns, in the order of the array.
        more: texts that come behind them, one for each row.
    """
    columns = [*(_texts(rows.column(name)) for name in names), *more]
    return [_encode(row) for row in zip(*columns, strict=True)]


def _texts(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_nested(kind):
        return _nested_values(column)
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return [None if value is None else value.hex() for value in column.to_pylist()]
    if pa.types.is_temporal(kind):
        return [None if t is None else t.replace("T", " ").rstrip("Z") for t in moments(column)]
    if pa.types.is_floating(kind):
        return [None if value is None else _fraction(value) for value in _floats(column)]
    return pc.cast(column, pa.string()).to_pylist()  # type: ignore[no-any-return]


def _floats(column: pa.Array) -> list[Any]:
    if column.type == pa.float64():
        return column.to_pylist()  # type: ignore[no-any-return]
    texts = pc.cast(column, pa.string())  # the shortest that reads back the same
    return texts.to_pylist()  # type: ignore[no-any-return]


def _fraction(value: Any) -> str:
    text = str(value)
    return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text)


def _nested_values(column: pa.Array) -> list[Any]:
    valid = column.is_valid().to_pylist()
    if pa.types.is_struct(column.type):
        children = [_texts(column.field(at)) for at in range(column.type.num_fields)]
        rows = zip(*children, strict=True) if children else [()] * len(column)
        return [list(row) if there else None for row, there in zip(rows, valid, strict=True)]
    bounds = column.offsets.to_pylist()
    spans = list(zip(bounds[:-1], bounds[1:], valid, strict=True))
    if pa.types.is_map(column.type):
        keys, items = _texts(column.keys), _texts(column.items)
        return [
            dict(zip(keys[begin:end], items[begin:end], strict=True)) if there else None
            for begin, end, there in spans
        ]
    items = _texts(column.values)
    return [items[begin:end] if there else None for begin, end, there in spans]


def wire(kind: TrinoType) -> str:
    """The type that a value of JSON is taken as, before it is cast to the column's."""
    if kind.name == "array":
        return f"array({wire(kind.inner[0])})"
    if kind.name == "row":
        return f"row({', '.join(map(wire, kind.inner))})"
    if kind.name == "map":
        return f"map(varchar, {wire(kind.inner[1])})"
    return "varchar"


def value(expression: str, kind: TrinoType) -> str:
    """The SQL of a value of the column's type, made of one in its `wire` type."""
    if kind.name == "varbinary":
        return f"from_hex({expression})"
    if kind.name == "json":
        return f"json_parse({expression})"
    if kind.is_bounded:
        return _bound(expression, kind)
    if kind.name in _OF_DAY:
        return _of_day(expression, kind)
    if kind.inner and (kind.has("varbinary", "json", *_OF_DAY) or _has_bounded(kind)):
        return _inside(expression, kind)
    return expression if kind.spelling == "varchar" else f"CAST({expression} AS {kind.spelling})"


def _bound(expression: str, kind: TrinoType) -> str:
    """A cast cuts text off: where letters would go, it is one that cannot succeed."""
    refused = _refusal(f"longer than {kind.spelling}", expression, kind)
    cast = f"CAST({expression} AS {kind.spelling})"
    return f"IF(length(rtrim({expression})) > {kind.numbers[0]}, {refused}, {cast})"


def _of_day(expression: str, kind: TrinoType) -> str:
    """A cast rounds, and behind the day's end it begins anew: 23:59:59.9996 would be 00:00:00."""
    refused = _refusal(f"rounded to the end of the day by {kind.spelling}", expression, kind)
    cast = f"CAST({expression} AS {kind.spelling})"
    begins = f"starts_with(CAST({cast} AS varchar), '00:00:00')"
    return f"IF(starts_with({expression}, '23:59:59.') AND {begins}, {refused}, {cast})"


def _refusal(why: str, expression: str, kind: TrinoType) -> str:
    """A cast that cannot succeed; Trino's error shows the text."""
    number = f"CAST({literal(f'{why}: ')} || {expression} AS bigint)"
    return f"CAST(CAST({number} AS varchar) AS {kind.spelling})"


def _has_bounded(kind: TrinoType) -> bool:
    return kind.is_bounded or any(map(_has_bounded, kind.inner))


def _inside(expression: str, kind: TrinoType) -> str:
    name = f"e{expression.count('->')}{len(expression)}"
    if kind.name == "array":
        return f"transform({expression}, {name} -> {value(name, kind.inner[0])})"
    if kind.name == "map":
        key, item = kind.inner
        items = f"transform_values({expression}, (k{name}, {name}) -> {value(name, item)})"
        return f"transform_keys({items}, (k{name}, {name}) -> {value(f'k{name}', key)})"
    members = ", ".join(value(f"{expression}[{at}]", each) for at, each in enumerate(kind.inner, 1))
    row = f"CAST(ROW({members}) AS {kind.spelling})"
    return f"IF({expression} IS NULL, NULL, {row})"


def typed_value(text: str, kind: str) -> str:
    """A value of a type from its text, as SQL; for positions."""
    return f"CAST({literal(text)} AS {kind})"
