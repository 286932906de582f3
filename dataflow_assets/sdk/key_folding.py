"""Rows of one key folded into one: which row each value comes from.

The last row wins, column by column: what a row did not carry comes from an earlier row of its key.
A hard delete forgets what came before it. Shared by the sinks that match rows by a key.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import ABSENT, DELETE, OP, UPDATE

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def deletes(rows: pa.RecordBatch) -> Bools:
    """Returns whether each row deletes its key.

    Called inside tasks, once for each batch of rows.

    Args:
        rows: typed rows, with or without the column OP.

    Returns:
        One value for each row.
    """
    return _are(rows, DELETE)


def updates(rows: pa.RecordBatch) -> Bools:
    """Returns whether the source says that a row was there before.

    Called inside tasks, once for each batch of rows. An insert may be one of a key that is stored:
    not all sources tell the two apart.

    Args:
        rows: typed rows, with or without the column OP.

    Returns:
        One value for each row.
    """
    return _are(rows, UPDATE)


def _are(rows: pa.RecordBatch, operation: int) -> Bools:
    if OP not in rows.schema.names:
        return np.zeros(rows.num_rows, np.bool_)
    same = pc.equal(rows.column(OP), operation).fill_null(False)
    found: Bools = same.to_numpy(zero_copy_only=False)
    return found


def matrix(rows: pa.RecordBatch, columns: int) -> tuple[Ints, Bools]:
    """Which columns each row does not carry.

    Called inside tasks, once for each batch of rows.

    Args:
        rows: typed rows, with or without the column ABSENT.
        columns: how many columns the target has; a mask has a bit for each.

    Returns:
        The mask of each row as a number, and for each number which of the columns are absent: there
        are few distinct masks.
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


def number_keys(keys: pa.Table) -> Ints:
    """The key of each row as a number.

    Called inside tasks, once for each batch of rows whose server compares keys as Arrow does.

    Args:
        keys: the columns of the key; a null equals a null.

    Returns:
        Numbers from 0 without gaps, for each row.
    """
    group = np.zeros(keys.num_rows, np.int64)
    for column in keys.columns:
        values = column.combine_chunks().dictionary_encode()
        codes = values.indices.fill_null(len(values.dictionary)).to_numpy().astype(np.int64)
        _, group = np.unique(group * (len(values.dictionary) + 1) + codes, return_inverse=True)
    return group


def distinct(rows: Bools) -> tuple[Bools, Ints]:
    """The distinct rows of a matrix, of which there are few.

    Called inside tasks, once for each batch of rows. NumPy's own `unique` sorts all rows, which
    costs as much as all else that is done to a batch.

    Args:
        rows: one row for each record or key.

    Returns:
        The distinct rows in ascending order, and for each row the number of its like.
    """
    if not len(rows) or (rows == rows[0]).all():
        return rows[:1], np.zeros(len(rows), np.int64)
    packed = np.packbits(rows, axis=1)
    buffers = [None, pa.py_buffer(packed.tobytes())]
    fixed = pa.Array.from_buffers(pa.binary(packed.shape[1]), len(packed), buffers)
    encoded = fixed.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary.cast(pa.binary())).to_numpy()
    found = np.frombuffer(b"".join(encoded.dictionary.to_pylist()), np.uint8)
    table = np.unpackbits(found.reshape(len(order), -1), axis=1)[:, : rows.shape[1]].astype(bool)
    rank = np.argsort(order)
    return table[order], rank[encoded.indices.to_numpy(zero_copy_only=False)].astype(np.int64)


def last(group: Ints, wanted: Bools) -> Ints:
    """The last wanted row of each key.

    Called inside tasks, several times for each batch of rows.

    Args:
        group: the key of each row, as numbers from 0 without gaps.
        wanted: the rows that count.

    Returns:
        For each key the number of a row, or -1.
    """
    found = np.full(int(group.max(initial=-1)) + 1, -1, np.int64)
    rows = np.flatnonzero(wanted)
    found[group[rows]] = rows  # of equal places the last assignment stays
    return found


def outliving(group: Ints, deleted: Bools) -> Bools:
    """The rows that leave something in the table, where a delete forgets what came before it.

    Called inside tasks, once for each batch of rows of a sink with hard deletes.

    Args:
        group: the key of each row, as numbers from 0 without gaps.
        deleted: the rows that delete their key.

    Returns:
        True for the rows behind the last delete of their key.
    """
    if not deleted.any():
        return ~deleted
    order = np.arange(len(group))
    found: Bools = order > last(group, deleted)[group]
    return found


def carriers(group: Ints, alive: Bools, mask: Ints, absent: Bools) -> Ints:
    """The row that each value comes from.

    Called inside tasks, once for each batch of rows.

    Args:
        group: the key of each row, as numbers from 0 without gaps.
        alive: the rows that count.
        mask: of each row, from `matrix`.
        absent: for each mask which columns are absent, from `matrix`.

    Returns:
        By key and column: the last living row that carried the column, or -1.
    """
    columns = [last(group, alive & ~absent[mask, index]) for index in range(absent.shape[1])]
    return np.stack(columns, axis=1)
