"""The stream of a binary COPY as Arrow: whole columns at once, whatever the rows' widths.

PostgreSQL sends a message per row, so the rows' starts are known; from there each column's place
follows from the sizes of those before it. Nothing is parsed value by value but arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow_assets.connectors.postgresql.source.moments import moments
from dataflow_assets.connectors.postgresql.source.types import Reading, TypeOf
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


class Decoder:
    """Decodes rows of these columns; an array's texts are lists of the declared depth."""

    def __init__(self, fields: Sequence[pa.Field], types: Sequence[TypeOf]) -> None:
        self.schema = pa.schema(fields)
        self._types = list(types)

    def decode(self, data: bytes, starts: Ints) -> pa.RecordBatch:
        """The rows that begin at `starts`, one behind the other up to the end of `data`."""
        at = starts + 2  # behind the number of columns
        arrays = []
        for field, kind in zip(self.schema, self._types, strict=True):
            sizes = _gathered(data, at, _SIZE).astype(np.int64)
            at = at + 4
            arrays.append(_column(data, at, sizes, field, kind))
            at = at + np.maximum(sizes, 0)
        if len(starts) and not np.array_equal(at, np.append(starts[1:], len(data))):
            raise PermanentError(_FOREIGN)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _column(data: bytes, at: Ints, sizes: Ints, field: pa.Field, kind: TypeOf) -> pa.Array:
    valid = sizes >= 0
    reading = kind.reading
    if kind.element is not None:
        return _lists(_texts(data, at, sizes, valid, reading), field, kind)
    if reading.arrow in _FIXED:
        return _fixed(data, np.where(valid, at, 0), valid, field)
    return _texts(data, at, sizes, valid, reading)


def _texts(
    data: bytes, at: Ints, sizes: Ints, valid: npt.NDArray[Any], reading: Reading
) -> pa.Array:
    """Every second one of the pieces that the values cut the data into."""
    starts = np.where(valid, at + reading.skip, at)
    bounds = np.empty(2 * len(at) + 1, np.int32)
    bounds[0:-1:2] = starts
    bounds[1::2] = np.where(valid, at + sizes, at)
    bounds[-1] = bounds[-2] if len(at) else 0
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.binary(), 2 * len(at), buffers)
    places = pa.array(np.arange(0, 2 * len(at), 2), mask=~valid)
    found = pieces.take(places)
    return found if reading.arrow == pa.binary() else _text(found)


def _text(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        raise PermanentError(
            "a text is not valid UTF-8: the database's encoding is SQL_ASCII, which checks none"
        ) from None


def _fixed(data: bytes, at: Ints, valid: npt.NDArray[Any], field: pa.Field) -> pa.Array:
    kind = _FIXED[field.type]
    values = _gathered(data, at, kind).astype(kind.newbyteorder("="))
    epoch = EPOCHS.get(field.type)
    if epoch is not None:
        values = _since_1970(values, epoch, valid, field)
    found = pa.array(values, mask=None if valid.all() else ~valid)
    return found if epoch is None and field.type == found.type else found.view(field.type)


def _since_1970(
    values: npt.NDArray[Any], epoch: int, valid: npt.NDArray[Any], field: pa.Field
) -> npt.NDArray[Any]:
    limits = np.iinfo(values.dtype)
    infinite = (values == limits.max) | (values == limits.min)
    if bool((valid & ~infinite & (values >= limits.max - epoch)).any()):
        raise PermanentError(
            f"column {field.name} holds a time beyond the year 294246, the last one that "
            "microseconds since 1970 can express; read it as text by a query"
        )
    found = np.where(infinite, values, values + epoch * ~infinite)
    return found.astype(values.dtype)


def _gathered(data: bytes, at: Ints, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """One value at each of the places, which need not be aligned."""
    if not len(at):
        return np.empty(0, kind)
    room = max(1, len(data) - kind.itemsize + 1)
    view: npt.NDArray[Any] = np.ndarray((room,), kind, data, strides=(1,))
    try:
        found: npt.NDArray[Any] = view[at]  # `take` would copy the whole view first
    except IndexError:
        raise PermanentError(_FOREIGN) from None
    return found


def _lists(texts: pa.Array, field: pa.Field, kind: TypeOf) -> pa.Array:
    """Arrays of text, as JSON, to lists of the element's own type."""
    joined = (
        b"[" + b",".join(b"null" if t is None else t.encode() for t in texts.to_pylist()) + b"]"
    )
    depth = kind.dimensions + 1
    try:
        found = msgspec.json.decode(joined, type=_nested(depth))
    except msgspec.ValidationError:
        raise PermanentError(
            f"column {field.name} is declared as {kind.declared} but holds an array of other "
            f"dimensions: declare all of them, or read it as text by a query"
        ) from None
    as_text = pa.array(found, of_text(field.type))
    return retyped(as_text, field.type, lambda texts, inner: _element(texts, inner, field.name))


def _nested(depth: int) -> Any:
    found: Any = str | None
    for _ in range(depth):
        found = list[found] | None
    return found


def of_text(kind: pa.DataType) -> pa.DataType:
    """Lists as deep as these, of texts."""
    return pa.list_(of_text(kind.value_type)) if pa.types.is_list(kind) else pa.string()


def retyped(
    values: pa.Array, kind: pa.DataType, element: Callable[[pa.Array, pa.DataType], pa.Array]
) -> pa.Array:
    """Lists of texts as lists of this type; `element` turns the texts into its values."""
    if not pa.types.is_list(kind):
        return element(values, kind)
    inner = retyped(values.values, kind.value_type, element)
    return pa.ListArray.from_arrays(
        values.offsets, inner, type=kind, mask=values.is_null() if values.null_count else None
    )


def _element(texts: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    if pa.types.is_binary(kind):
        values = [None if t is None else bytes.fromhex(t[2:]) for t in texts.to_pylist()]
        return pa.array(values, kind)
    if pa.types.is_temporal(kind):
        return moments(texts, kind, name)
    return texts.cast(kind)
