"""The number of a batch's messages that fit into a number of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes = npt.NDArray[np.int64]


def fitting(batch: pa.RecordBatch, most: int) -> tuple[pa.RecordBatch, int]:
    """The first messages, which have so many bytes at most, or one message; and their bytes.

    Bodies count, and of keys and headers what somebody reads: the others are not in the batch.
    """
    each = _lengths(batch.column("body"))
    if "key" in batch.schema.names:
        each += _lengths(batch.column("key"))
    if "headers" in batch.schema.names:
        each += _of_headers(batch.column("headers"))
    sizes = np.cumsum(each)
    rows = max(1, int(np.searchsorted(sizes, most, "right")))
    return batch.slice(0, rows), int(sizes[rows - 1])


def join(pieces: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Neighbouring pieces as one batch, until it has so many bytes."""
    held: list[pa.RecordBatch] = []
    for piece in pieces:
        held.append(piece)
        if sum(one.nbytes for one in held) >= most:
            yield pa.concat_batches(held)
            held.clear()
    if held:
        yield pa.concat_batches(held)


def divide(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """The batch in pieces that have so many bytes at most, or one message."""
    while batch.nbytes > most and batch.num_rows > 1:
        piece, _ = fitting(batch, most)
        yield piece
        batch = batch.slice(piece.num_rows)
    if batch.num_rows:
        yield batch


def _lengths(column: pa.Array) -> Bytes:
    lengths = pc.fill_null(pc.binary_length(column), 0)
    return np.array(lengths, np.int64)


def _of_headers(column: pa.ListArray) -> Bytes:
    names, values = column.flatten().flatten()
    behind = np.concatenate([[0], np.cumsum(_lengths(names) + _lengths(values))])
    upto = np.cumsum(pc.fill_null(pc.list_value_length(column), 0).to_numpy())
    each: Bytes = np.diff(behind[upto], prepend=0)
    return each
