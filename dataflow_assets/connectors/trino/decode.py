"""Values as Trino's JSON has them -> Arrow columns. Called in tasks, for each page of an answer."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from datetime import time
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from dataflow_assets.connectors.trino.client import Rows
from dataflow_assets.connectors.trino.table.table import Column
from dataflow_assets.connectors.trino.type_names import TrinoType
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.structs import struct_of
from dataflow_assets.records.record import exact_json

_ZONED = "timestamp with time zone"
BATCH_ROWS = 20_000


def batches(
    pages: Iterator[Rows], columns: Sequence[tuple[Column, pa.Field]]
) -> Iterator[pa.RecordBatch]:
    """The pages of an answer as batches of some size.

    Called inside tasks, once for each query.

    Args:
        pages: rows as Trino's JSON has them.
        columns: as they were selected (`types.select_expression`), and what they travel as.
    """
    waiting: Rows = []
    for page in pages:
        waiting += page
        if len(waiting) >= BATCH_ROWS:
            yield _batch(waiting, columns)
            waiting = []
    if waiting:
        yield _batch(waiting, columns)


def _batch(rows: Rows, columns: Sequence[tuple[Column, pa.Field]]) -> pa.RecordBatch:
    arrays = [
        _column(values, column, field.type)
        for values, (column, field) in zip(zip(*rows, strict=True), columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([field for _, field in columns]))


def _column(values: Sequence[Any], column: Column, arrow: pa.DataType) -> pa.Array:
    try:
        return decode_column(values, column.kind, arrow)
    except (ValueError, OverflowError) as error:
        raise PermanentError(
            f"column {column.name} has a value that is none of {column.type} outside Trino: "
            f"{error}; leave the column out, or give a `query` that casts it to varchar"
        ) from None


def decode_column(values: Sequence[Any], kind: TrinoType, arrow: pa.DataType) -> pa.Array:
    """One column.

    Args:
        values: of one column, as `types.select_expression` selects it.
        kind: the column's type in Trino.
        arrow: what it travels as.
    """
    if pa.types.is_timestamp(arrow):
        return _timestamps(values, kind, arrow)
    if kind.name == "array":
        return _lists(values, kind, arrow)
    if kind.name == "row":
        return _structs(values, kind, arrow)
    if kind.name == "map":
        return pa.array([_json(value, kind) for value in values], arrow)
    if kind.name == "varbinary":
        return pa.array([None if v is None else base64.b64decode(v) for v in values], arrow)
    if kind.name in {"real", "double"}:
        return pa.array([float(v) if v.__class__ is str else v for v in values], arrow)
    if pa.types.is_date(arrow):
        return _moments(values, arrow)
    if pa.types.is_decimal(arrow):
        return pa.array(values, pa.string()).cast(arrow)
    if pa.types.is_time(arrow):
        return pa.array([None if v is None else time.fromisoformat(v) for v in values], arrow)
    return pa.array(values, arrow)


def _timestamps(values: Sequence[Any], kind: TrinoType, arrow: Any) -> pa.Array:
    if kind.name == _ZONED:  # of elements, which are texts in UTC
        values = [None if v is None else v.removesuffix(" UTC") for v in values]
    naive = _moments(values, pa.timestamp(arrow.unit))
    return naive.cast(arrow) if arrow.tz else naive


def _moments(texts: Sequence[str | None], arrow: Any) -> pa.Array:
    try:
        return pa.array(texts, pa.string()).cast(arrow)
    except pa.ArrowInvalid:  # it reads no years but those of four digits
        whole = pa.int32() if pa.types.is_date(arrow) else pa.int64()
        numbers = [None if text is None else _number(text, arrow) for text in texts]
        return pa.array(numbers, whole).cast(arrow)


def _number(text: str, arrow: Any) -> int:
    """Days, or parts of a second, since 1970. Raises ValueError for a time beyond."""
    if pa.types.is_date(arrow):
        return int(np.datetime64(text.removeprefix("+"), "D").astype(np.int64))
    moment, _, fraction = text.removeprefix("+").partition(".")
    digits = 9 if arrow.unit == "ns" else 6
    seconds = int(np.datetime64(moment.replace(" ", "T"), "s").astype(np.int64))
    ticks: int = seconds * 10**digits + int(fraction.ljust(digits, "0") or 0)
    if not -(2**63) < ticks < 2**63 - 1:
        raise ValueError(f"{text} is beyond what 64 bits count in {arrow.unit} since 1970")
    return ticks


def _lists(values: Sequence[Any], kind: TrinoType, arrow: Any) -> pa.Array:
    offsets, flat = [0], list[Any]()
    for value in values:
        flat.extend(value or ())
        offsets.append(len(flat))
    items = decode_column(flat, kind.inner[0], arrow.value_type)
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=arrow, mask=mask)


def _structs(values: Sequence[Any], kind: TrinoType, arrow: Any) -> pa.Array:
    children = [
        decode_column([None if v is None else v[at] for v in values], inner, arrow.field(at).type)
        for at, inner in enumerate(kind.inner)
    ]
    mask = pa.array([value is None for value in values], pa.bool_())
    return struct_of(children, list(arrow), mask)


def _json(value: Any, kind: TrinoType) -> str | None:
    """A map: at the top it was selected as JSON, inside of others it is an object."""
    if value is None or value.__class__ is str:
        return value
    return exact_json(_plain(value, kind)).decode()


def _plain(value: Any, kind: TrinoType) -> Any:
    if value is None:
        return None
    if kind.name == "map":
        return {key: _plain(item, kind.inner[1]) for key, item in value.items()}
    if kind.name == "array":
        return [_plain(item, kind.inner[0]) for item in value]
    if kind.name == "row":
        items = map(_plain, value, kind.inner)
        return dict(zip(kind.labels, items, strict=True))
    if kind.name == "json":
        return msgspec.Raw(value.encode())
    return Decimal(value) if kind.name == "decimal" else value
