"""Rows matched by their key: staged rows folded, and stored rows as they stand after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.sdk.key_folding import Bools, Ints, carriers, deletes, last, matrix, outliving


@dataclass(frozen=True)
class IcebergRules:
    """The sink's rules for keys and deletes. `now`: when deletes are marked, the same for all.

    `soft`: the column that marks them; None where rows of deleted keys are removed.
    """

    key: tuple[str, ...]
    soft: str | None
    now: datetime


@dataclass(frozen=True)
class Folded:
    """One row per key. `carried`: by row and column, whether the value replaces a stored one."""

    keys: pa.Array
    columns: list[pa.Array]
    carried: Bools
    gone: Bools
    """The key's stored row is removed."""
    new: Bools
    """The row is inserted where none is stored."""


def fold(rows: pa.RecordBatch, schema: pa.Schema, rules: IcebergRules) -> Folded:
    """Rows in order, with their system columns, as what applying them one by one leaves."""
    encoded = key_bytes(rows, schema, rules.key).dictionary_encode()
    group = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    deleted, (mask, absent) = deletes(rows), matrix(rows, len(schema))
    alive = ~deleted if rules.soft else outliving(group, deleted)
    places = carriers(group, alive, mask, absent)
    final = last(group, np.ones(len(group), np.bool_))
    lives = last(group, alive) >= 0
    if rules.soft is None:
        renewed = lives & (last(group, deleted) >= 0)
        carried = (places >= 0) | renewed[:, None]  # behind a delete, what is absent is null
        columns = _take(rows, schema, places)
        return Folded(encoded.dictionary, columns, carried, ~lives, lives)
    index = schema.names.index(rules.soft)
    silent = absent[mask[final], index]
    places[:, index] = np.where(deleted[final] | silent, -1, final)
    columns = _take(rows, schema, places)
    columns[index] = _mark_deleted(columns[index], deleted[final], rules.now)
    carried = places >= 0
    carried[:, index] = True  # an upsert takes the mark away though no row speaks of it
    return Folded(encoded.dictionary, columns, carried, np.zeros(len(final), np.bool_), lives)


def _take(rows: pa.RecordBatch, schema: pa.Schema, places: Ints) -> list[pa.Array]:
    return [
        rows.column(name).take(pa.array(places[:, index], pa.int64(), mask=places[:, index] < 0))
        for index, name in enumerate(schema.names)
    ]


def _mark_deleted(values: pa.Array, deleted: Bools, now: datetime) -> pa.Array:
    moment = now if getattr(values.type, "tz", None) else now.replace(tzinfo=None)
    return pc.if_else(pa.array(deleted), pa.scalar(moment, values.type), values)


def merge_rows(stored: pa.RecordBatch, folded: Folded, rules: IcebergRules) -> pa.RecordBatch:
    """The stored rows, changed where a folded row has their key, without those that are gone."""
    schema = stored.schema
    keys = key_bytes(stored, schema, rules.key)
    indexes = pc.index_in(keys, value_set=folded.keys)
    matched = indexes.is_valid().to_numpy(zero_copy_only=False)
    partner = indexes.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if not matched.any():
        return stored
    here = np.arange(stored.num_rows)
    arrays = []
    for index, column in enumerate(stored.columns):
        replaced = matched & folded.carried[partner, index]
        if not replaced.any():
            arrays.append(column)
            continue
        both = pa.concat_arrays([column, folded.columns[index]])
        arrays.append(both.take(pa.array(np.where(replaced, stored.num_rows + partner, here))))
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    gone = matched & folded.gone[partner]
    return rows.filter(pa.array(~gone)) if gone.any() else rows


def new_rows(folded: Folded, schema: pa.Schema) -> pa.RecordBatch:
    """The folded rows that nothing stored has the key of."""
    rows = pa.RecordBatch.from_arrays(folded.columns, schema=schema)
    return rows if folded.new.all() else rows.filter(pa.array(folded.new))


def key_bytes(rows: pa.RecordBatch, schema: pa.Schema, key: Sequence[str]) -> pa.Array:
    """The key of each row as bytes, equal only where the keys are. `schema` tells the types."""
    texts = [_bytes(rows.column(name).cast(schema.field(name).type)) for name in key]
    if len(texts) == 1:
        return texts[0]
    colon = pa.scalar(b":", pa.binary())
    parts: list[pa.Array] = []
    for text in texts:  # lengths before the parts: no text can look like two
        length = pc.cast(pc.binary_length(text), pa.string()).cast(pa.binary())
        parts += [length, colon, text]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))


def _bytes(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_string(kind):
        return values.cast(pa.binary())
    if pa.types.is_binary(kind):
        return values
    if pa.types.is_temporal(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        values = values.cast(width)
    return values.cast(pa.string()).cast(pa.binary())
