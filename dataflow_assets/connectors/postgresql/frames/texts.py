"""A frame's columns as PostgreSQL reads them from CSV, and the types of a table made for them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa

from dataflow_assets.connectors.postgresql.frames.frame_table import is_bytes
from dataflow_assets.formats.rows import cells
from dataflow_assets.records.record import exact_json

_SECOND = 1_000_000  # of Spark's microseconds


def sql_type(kind: pa.DataType) -> str:
    """The type of a column that is made for a frame's."""
    for test, name in (
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_int64, "bigint"),
        (pa.types.is_int32, "integer"),
        (pa.types.is_integer, "smallint"),
        (pa.types.is_float32, "real"),
        (pa.types.is_floating, "double precision"),
        (pa.types.is_date, "date"),
        (pa.types.is_time, "time"),
        (pa.types.is_duration, "interval"),
        (pa.types.is_nested, "jsonb"),
        (is_bytes, "bytea"),
    ):
        if test(kind):
            return name
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    return "text"


def texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What CSV cannot hold as text: nested values as JSON, bytes as PostgreSQL's hex."""
    columns = [_text(batch.column(i)) for i in range(batch.num_columns)]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_nested(kind):
        found = [None if v is None else exact_json(v).decode() for v in _values(column)]
    elif is_bytes(kind):
        found = [None if v is None else f"\\x{v.hex()}" for v in column.to_pylist()]
    elif pa.types.is_duration(kind):
        counts = column.cast(pa.duration("us")).cast(pa.int64()).to_pylist()
        found = [None if v is None else f"{v} microseconds" for v in counts]
    else:
        return column
    return pa.array(found, pa.string())


def _values(column: pa.Array) -> list[Any]:
    """As the JSON encoder takes them: numbers keep their digits, bytes are base64."""
    kind = column.type
    if pa.types.is_duration(kind):
        counts = column.cast(pa.duration("us")).cast(pa.int64()).to_pylist()
        return [None if v is None else _iso(v) for v in counts]
    if pa.types.is_struct(kind):
        members = [_values(column.field(i)) for i in range(kind.num_fields)]
        names = [member.name for member in kind]
        rows = zip(*members, strict=True) if members else [()] * len(column)
        return _valid(column, [dict(zip(names, row, strict=True)) for row in rows])
    if pa.types.is_map(kind):
        names = list(map(_name, _values(column.keys)))
        pairs = list(zip(names, _values(column.items), strict=True))
        return _valid(column, [dict(pairs[start:end]) for start, end in _bounds(column)])
    if pa.types.is_list(kind):
        items = _values(column.values)
        return _valid(column, [items[start:end] for start, end in _bounds(column)])
    return cells(column, pa.field("", kind))


def _bounds(column: pa.Array) -> Iterator[tuple[int, int]]:
    return pairwise(column.offsets.to_pylist())


def _valid(column: pa.Array, found: list[Any]) -> list[Any]:
    valid = column.is_valid().to_pylist()
    return [each if there else None for each, there in zip(found, valid, strict=True)]


def _name(key: Any) -> str:
    """JSON's names are texts."""
    return key if isinstance(key, str) else exact_json(key).decode()


def _iso(count: int) -> str:
    sign, (seconds, rest) = "-" if count < 0 else "", divmod(abs(count), _SECOND)
    return f"{sign}PT{seconds}" + (f".{rest:06}".rstrip("0") if rest else "") + "S"
