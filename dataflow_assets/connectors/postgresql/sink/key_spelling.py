"""A stored row keeps the spelling of its key by which it was inserted, whoever updates it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataflow_assets.connectors.postgresql.sink.key_equality import varies
from dataflow_assets.connectors.postgresql.sink.key_order import Ints
from dataflow_assets.connectors.postgresql.sink.upsert_rules import Rules
from dataflow_assets.sdk.key_folding import Bools, deletes


def as_inserted(rows: pa.RecordBatch, group: Ints, rules: Rules) -> pa.RecordBatch:
    """Each row with the key as the row wrote it that inserts its key."""
    names = [name for name in rules.key if varies(rules.schema.field(name))]
    if not names or len(group) == group.max(initial=-1) + 1:
        return rows
    sources = pa.array(_inserting(group, deletes(rows), hard=rules.hard))
    for name in names:
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index), rows.column(index).take(sources))
    return rows


def _inserting(group: Ints, deleted: Bools, *, hard: bool) -> Ints:
    """For each row the row that inserts its key: the first that deletes nothing.

    Behind a hard delete the key is inserted anew.
    """
    order = np.argsort(group, kind="stable")
    begins = np.diff(group[order], prepend=-1) != 0
    if hard:
        begins[1:] |= deleted[order][:-1]
    life = np.cumsum(begins) - 1
    places = np.flatnonzero(~deleted[order])
    first = order[np.flatnonzero(begins)]
    first[life[places][::-1]] = order[places[::-1]]  # of equal places the last assignment stays
    found = np.empty(len(group), np.int64)
    found[order] = first[life]
    return found
