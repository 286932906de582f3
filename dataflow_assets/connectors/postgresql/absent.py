"""Which columns a record did not carry, per distinct mask: there are few."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow_assets.contracts import ABSENT

Bools = npt.NDArray[np.bool_]


def matrix(rows: pa.RecordBatch, columns: int) -> tuple[npt.NDArray[np.int64], Bools]:
    """(the mask of each row as a number, for each number which of the columns are absent)."""
    if ABSENT not in rows.schema.names:
        return np.zeros(rows.num_rows, np.int64), np.zeros((1, columns), np.bool_)
    encoded = rows.column(ABSENT).fill_null(b"").dictionary_encode()
    masks = [_bits(mask, columns) for mask in encoded.dictionary.to_pylist()]
    table = np.array(masks, np.bool_).reshape(-1, columns)
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), table


def _bits(mask: bytes, columns: int) -> Bools:
    found = np.zeros(columns, np.bool_)
    bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")[:columns]
    found[: len(bits)] = bits
    return found


def by_columns(
    rows: pa.RecordBatch, schema: pa.Schema, optional: Bools
) -> Iterator[tuple[list[str], pa.RecordBatch]]:
    """The rows by the columns to name in a statement: absent ones of `optional` are left out."""
    codes, table = matrix(rows, len(schema))
    left_out, which = np.unique(table & optional, axis=0, return_inverse=True)
    if len(left_out) == 1:
        yield _named(schema, left_out[0]), rows
        return
    group = which.reshape(-1)[codes]
    for number, mask in enumerate(left_out):
        part = rows.filter(pa.array(group == number))
        if part.num_rows:
            yield _named(schema, mask), part


def _named(schema: pa.Schema, left_out: Bools) -> list[str]:
    return [name for name, out in zip(schema.names, left_out, strict=True) if not out]
