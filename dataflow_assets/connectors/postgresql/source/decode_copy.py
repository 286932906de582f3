"""The stream of a binary COPY as Arrow: whole columns at once, whatever the rows' widths.

PostgreSQL sends a message per row, so the rows' starts are known; from there each column's place
follows from the sizes of those before it. Nothing is parsed value by value but arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow_assets.connectors.postgresql.source.array_values import lists
from dataflow_assets.connectors.postgresql.source.fitted import Fitted, batch_of
from dataflow_assets.connectors.postgresql.source.moments import LIMIT, far_moment, moments
from dataflow_assets.connectors.postgresql.source.types import TypeOf
from dataflow_assets.errors import PermanentError

HEADER = 19  # bytes before the first row, where no extension is announced
TRAILER = b"\xff\xff"
_FOREIGN = (
    "the server does not send a message for each row of a COPY: it is not PostgreSQL, or a proxy "
    "in front of it changes its messages"
)

Ints = npt.NDArray[np.int64]

_SIZE = np.dtype(">i4")
_FIXED = {
    pa.bool_(): np.dtype("?"),
    pa.int16(): np.dtype(">i2"),
    pa.int32(): np.dtype(">i4"),
    pa.int64(): np.dtype(">i8"),
    pa.float32(): np.dtype(">f4"),
    pa.float64(): np.dtype(">f8"),
    pa.date32(): np.dtype(">i4"),
    pa.time64("us"): np.dtype(">i8"),
    pa.timestamp("us"): np.dtype(">i8"),
    pa.timestamp("us", "UTC"): np.dtype(">i8"),
}
EPOCHS = {
    pa.date32(): 10_957,
    pa.timestamp("us"): 946_684_800_000_000,
    pa.timestamp("us", "UTC"): 946_684_800_000_000,
}
"""1970 to 2000, in units of the types. The largest and the smallest value are infinities."""


class PostgresqlDecoder:
    """Decodes rows of these columns."""

    def __init__(self, fields: Sequence[pa.Field], types: Sequence[TypeOf]) -> None:
        self._columns = list(zip(fields, types, strict=True))

    def decode(self, data: bytes, starts: Ints) -> pa.RecordBatch:
        """The rows that begin at `starts`, one behind the other up to the end of `data`."""
        at = starts + 2  # behind the number of columns
        columns = []
        for field, kind in self._columns:
            sizes = _gather(data, at, _SIZE).astype(np.int64)
            at = at + 4
            columns.append(_column(data, at, sizes, field, kind))
            at = at + np.maximum(sizes, 0)
        if len(starts) and not np.array_equal(at, np.append(starts[1:], len(data))):
            raise PermanentError(_FOREIGN)
        return batch_of(columns)


def _column(data: bytes, at: Ints, sizes: Ints, field: pa.Field, kind: TypeOf) -> Fitted:
    valid = sizes >= 0
    reading = kind.reading
    if kind.element is not None:
        fitted = _lists(_text(_pieces(data, at, sizes, valid)), field.name, kind)
        metadata = {**(field.metadata or {}), **fitted.field.metadata}
        return replace(fitted, field=fitted.field.with_metadata(metadata))
    if reading.arrow in _FIXED:
        return _fixed_width(data, np.where(valid, at, 0), valid, field)
    pieces = _pieces(data, at, sizes, valid, version=int(kind.base == "jsonb"))
    return Fitted(field, pieces if reading.arrow == pa.binary() else _text(pieces))


def _pieces(
    data: bytes, at: Ints, sizes: Ints, valid: npt.NDArray[Any], version: int = 0
) -> pa.Array:
    """Every second one of the pieces that the values cut the data into.

    `version`: bytes in front of each value.
    """
    bounds = np.empty(2 * len(at) + 1, np.int32)
    bounds[0:-1:2] = np.where(valid, at + version, at)
    bounds[1::2] = np.where(valid, at + sizes, at)
    bounds[-1] = bounds[-2] if len(at) else 0
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.binary(), 2 * len(at), buffers)
    return pieces.take(pa.array(np.arange(0, 2 * len(at), 2), mask=~valid))


def _text(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        raise PermanentError(
            "a text is not valid UTF-8: the database's encoding is SQL_ASCII, which checks none"
        ) from None


def _fixed_width(data: bytes, at: Ints, valid: npt.NDArray[Any], field: pa.Field) -> Fitted:
    kind = _FIXED[field.type]
    values: npt.NDArray[Any] = _gather(data, at, kind).astype(kind.newbyteorder("="))
    epoch, unfit = EPOCHS.get(field.type), dict[int, Any]()
    if epoch is not None:
        limits = np.iinfo(values.dtype)
        infinite = (values == limits.max) | (values == limits.min)
        if pa.types.is_timestamp(field.type):
            far = np.flatnonzero(valid & ~infinite & (values >= LIMIT - epoch)).tolist()
            unfit = {row: far_moment(int(values[row])) for row in far}
            valid, values = _without(valid, values, far)
        values = np.where(infinite, values, values + epoch * ~infinite).astype(values.dtype)
    array = pa.array(values, mask=None if valid.all() else ~valid)
    plain = epoch is None and field.type == array.type
    return Fitted(field, array if plain else array.view(field.type), unfit)


def _without(
    valid: npt.NDArray[Any], values: npt.NDArray[Any], rows: list[int]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    if rows:
        valid, values = valid.copy(), values.copy()
        valid[rows], values[rows] = False, 0
    return valid, values


def _gather(data: bytes, at: Ints, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """One value at each of the places, which need not be aligned."""
    if not len(at):
        return np.empty(0, kind)
    room = max(1, len(data) - kind.itemsize + 1)
    view: npt.NDArray[Any] = np.ndarray((room,), kind, data, strides=(1,))
    try:
        values: npt.NDArray[Any] = view[at]  # `take` would copy the whole view first
    except IndexError:
        raise PermanentError(_FOREIGN) from None
    return values


def _lists(texts: pa.Array, name: str, kind: TypeOf) -> Fitted:
    """Arrays of text, as JSON, to lists of the element's own type."""
    joined = (
        b"[" + b",".join(b"null" if t is None else t.encode() for t in texts.to_pylist()) + b"]"
    )
    return lists(msgspec.json.decode(joined), kind, name, _element)


def _element(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        values = [None if t is None else bytes.fromhex(t[2:]) for t in texts.to_pylist()]
        return pa.array(values, kind)
    if pa.types.is_temporal(kind):
        return moments(texts, kind)
    return texts.cast(kind)
