"""Rows of one key folded into one: which row each value comes from.

The last row wins, column by column: what a row did not carry comes from an earlier row of its key.
A hard delete forgets what came before it. Shared by the sinks that match rows by a key.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import ABSENT, DELETE, OP

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def deletes(rows: pa.RecordBatch) -> Bools:
    """Whether each row deletes its key."""
    if OP not in rows.schema.names:
        return np.zeros(rows.num_rows, np.bool_)
    found: Bools = pc.equal(rows.column(OP), DELETE).fill_null(False).to_numpy(zero_copy_only=False)
    return found


def matrix(rows: pa.RecordBatch, columns: int) -> tuple[Ints, Bools]:
    """(the mask of each row as a number, for each number which of the columns are absent).

    There are few distinct masks.
    """
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


def last(group: Ints, wanted: Bools) -> Ints:
    """For each key its last wanted row, or -1. `group`: keys as numbers from 0 without gaps."""
    found = np.full(int(group.max(initial=-1)) + 1, -1, np.int64)
    rows = np.flatnonzero(wanted)
    found[group[rows]] = rows  # of equal places the last assignment stays
    return found


def outliving(group: Ints, deleted: Bools) -> Bools:
    """Rows that leave something in the table where a delete forgets what came before it."""
    if not deleted.any():
        return ~deleted
    order = np.arange(len(group))
    found: Bools = order > last(group, deleted)[group]
    return found


def carriers(group: Ints, alive: Bools, mask: Ints, absent: Bools) -> Ints:
    """By key and column: the last living row that carried the column, or -1."""
    columns = [last(group, alive & ~absent[mask, index]) for index in range(absent.shape[1])]
    return np.stack(columns, axis=1)
