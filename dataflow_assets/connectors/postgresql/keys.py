"""Keys and versions as PostgreSQL compares them: which rows share a key, which order they have."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.table import TYPE
from dataflow_assets.contracts import KIND

Ints = npt.NDArray[np.int64]


def numbers(rows: pa.RecordBatch, key: tuple[str, ...], schema: pa.Schema) -> Ints:
    """The number of each row's key, from 0 without gaps."""
    if _ascend(rows, key):
        return np.arange(rows.num_rows, dtype=np.int64)
    codes = np.zeros(rows.num_rows, np.int64)
    for position, name in enumerate(key):
        encoded = _comparable(rows.column(name), schema.field(name)).dictionary_encode()
        found = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = found if position == 0 else _dense(codes * len(encoded.dictionary) + found)
    return codes


def sorted_by(rows: pa.RecordBatch, key: tuple[str, ...]) -> pa.RecordBatch:
    """In key order: two slices that lock the same keys then meet in the same order."""
    if _ascend(rows, key):
        return rows
    order = pc.sort_indices(rows, [(name, "ascending") for name in key]).to_numpy()
    if (np.diff(order.astype(np.int64)) == 1).all():
        return rows
    return rows.take(pa.array(order))


def ranked(values: pa.Array, field: pa.Field) -> pa.Array | None:
    """Numbers that sort as PostgreSQL sorts the versions; None where only it can tell."""
    if (field.metadata or {}).get(KIND) == b"numeric":
        encoded = values.dictionary_encode()
        decimals = [_decimal(text) for text in encoded.dictionary.to_pylist()]
        rank = {number: place for place, number in enumerate(sorted(set(decimals)))}
        return pa.array([rank[number] for number in decimals], pa.int64()).take(encoded.indices)
    return None if pa.types.is_string(field.type) else values


def _ascend(rows: pa.RecordBatch, key: tuple[str, ...]) -> bool:
    """Integers that rise from row to row, as those of a sequence do: seen at a glance."""
    column = rows.column(key[0])
    if len(key) > 1 or not pa.types.is_integer(column.type) or column.null_count:
        return False
    values = column.to_numpy()
    return bool((values[1:] > values[:-1]).all())


def _dense(codes: Ints) -> Ints:
    encoded = pa.array(codes).dictionary_encode()
    indices: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return indices


def _comparable(values: pa.Array, field: pa.Field) -> pa.Array:
    """Equal only where PostgreSQL finds them equal: 1.0 and 1, and a uuid in most spellings.

    Two that only PostgreSQL knows to be equal meet in its statement, which splits the rows.
    """
    metadata = field.metadata or {}
    if metadata.get(KIND) == b"numeric":
        seen: dict[Decimal, int] = {}
        places = [seen.setdefault(_decimal(text), len(seen)) for text in values.to_pylist()]
        return pa.array(places, pa.int64())
    if metadata.get(TYPE) == b"uuid":
        return pc.replace_substring(pc.utf8_lower(values), "-", "")
    return values


def _decimal(text: str) -> Decimal:
    """Exact; exponents that no numeric column holds are all the same, and refused by it."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("-Infinity" if text.startswith("-") else "Infinity")
