"""Keys and versions as PostgreSQL compares them: which rows share a key, which order they have."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.sink.key_equality import comparable

Ints = npt.NDArray[np.int64]


def numbers(rows: pa.RecordBatch, key: tuple[str, ...], schema: pa.Schema) -> Ints | None:
    """The number of each row's key, from 0 without gaps; None where only the server can tell."""
    if _ascend(rows, key):
        return np.arange(rows.num_rows, dtype=np.int64)
    columns = [comparable(rows.column(name), schema.field(name)) for name in key]
    known = [column for column in columns if column is not None]
    return _number(known) if len(known) == len(key) else None


def spellings(rows: pa.RecordBatch, key: tuple[str, ...]) -> Ints:
    """The number of each row's key as it is written, from 0 without gaps."""
    return _number([rows.column(name) for name in key])


def firsts(codes: Ints) -> Ints:
    found: Ints = np.unique(codes, return_index=True)[1].astype(np.int64)
    return found


def dense(codes: Ints) -> Ints:
    """The same groups, numbered from 0 without gaps."""
    encoded = pa.array(codes).dictionary_encode()
    indices: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return indices


def sorted_by(rows: pa.RecordBatch, key: tuple[str, ...]) -> pa.RecordBatch:
    """In key order: two slices that lock the same keys then meet in the same order."""
    if _ascend(rows, key):
        return rows
    order = pc.sort_indices(rows, [(name, "ascending") for name in key]).to_numpy()
    if (np.diff(order.astype(np.int64)) == 1).all():
        return rows
    return rows.take(pa.array(order))


def ranks(values: pa.Array, field: pa.Field) -> pa.Array | None:
    """Returns what sorts as PostgreSQL sorts the stored versions; None where only it can tell."""
    found = comparable(values, field)
    return None if found is None or pa.types.is_string(found.type) else found


def _number(columns: list[pa.Array]) -> Ints:
    codes = np.zeros(len(columns[0]), np.int64)
    for position, column in enumerate(columns):
        encoded = column.dictionary_encode()
        found = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = found if position == 0 else dense(codes * len(encoded.dictionary) + found)
    return codes


def _ascend(rows: pa.RecordBatch, key: tuple[str, ...]) -> bool:
    """Integers that rise from row to row, as those of a sequence do: seen at a glance."""
    column = rows.column(key[0])
    if len(key) > 1 or not pa.types.is_integer(column.type) or column.null_count:
        return False
    values = column.to_numpy()
    return bool((values[1:] > values[:-1]).all())
