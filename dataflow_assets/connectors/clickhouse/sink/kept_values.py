"""Values that a change has left alone: they are those of the row that it takes the place of.

A row takes the place of a whole one, so what its source does not know of it would be lost. It is
taken from an earlier row of its key in the same INSERT, else from the table. Whoever repeats an
INSERT after a crash may find its rows in the table already: they have the same values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataflow_assets.connectors.clickhouse.sink.stored_rows import StoredRows
from dataflow_assets.connectors.clickhouse.sink.upsert_rules import deletes
from dataflow_assets.contracts import ABSENT, UNKNOWN, Note
from dataflow_assets.formats.json_types import is_optional
from dataflow_assets.sdk.key_folding import Bools, Ints, last, matrix, number_keys

_AT_ONCE = 2_000  # rows that lack something, whose values may be large


@dataclass(frozen=True)
class Filled:
    """Rows with all their values. `refused`: by index why there is no row to take a value from."""

    rows: pa.Table
    refused: Mapping[int, str]


def fill_gaps(rows: pa.Table, schema: pa.Schema, stored: StoredRows, *, in_order: bool) -> Filled:
    """The rows of one INSERT with the values that they lack. Called inside tasks.

    Args:
        rows: in the sink's schema with OP, ABSENT and UNKNOWN, in their order.
        schema: the sink's.
        stored: the rows of the table.
        in_order: the last row of a key counts, and not one of the highest version: those that it
            replaces are left out if they lack something.

    Returns:
        Rows that lack nothing are as they were.

    Raises:
        Failure, PermanentError as `StoredRows.values`.
    """
    key = json.loads(Note.KEY.of(schema) or "[]")
    gone = deletes(rows)
    unknown = rows.column(UNKNOWN).is_valid().to_numpy() & ~gone
    if not key or not unknown.any():
        return Filled(rows, {})
    group = number_keys(rows.select(key))
    lacks = _absent_cells(rows, len(schema)) & unknown[:, None]
    kept = ~lacks.any(axis=1) | _is_last(group) if in_order else np.ones(len(group), np.bool_)
    return _Gaps(rows, schema, key, gone, lacks, _sources(group, lacks), stored).fill(kept)


@dataclass(frozen=True)
class _Gaps:
    """What the rows of one INSERT lack, and where it is."""

    rows: pa.Table
    schema: pa.Schema
    key: list[str]
    gone: Bools
    """The rows that delete their key."""
    lacks: Bools
    """By row and column of the sink's schema."""
    sources: Ints
    """Likewise: the row of the same key before that has the value; -1: none has."""
    stored: StoredRows

    def fill(self, kept: Bools) -> Filled:
        """These of the rows, some after the others: values that are looked up may be large."""
        lacking = np.cumsum(kept & self.lacks.any(axis=1))
        ends = np.searchsorted(lacking, np.arange(_AT_ONCE, lacking[-1], _AT_ONCE)) + 1
        parts, refused, count = [], dict[int, str](), 0
        for low, high in zip([0, *ends], [*ends, len(kept)], strict=True):
            part = self._part(int(low), int(high), kept)
            refused |= {count + row: why for row, why in part.refused.items()}
            parts.append(part.rows)
            count += part.rows.num_rows
        return Filled(pa.concat_tables(parts), refused)

    def _part(self, low: int, high: int, kept: Bools) -> Filled:
        numbers = low + np.flatnonzero(kept[low:high])
        rows = self.rows.slice(low, high - low).filter(pa.array(kept[low:high]))
        lacks = self.lacks[numbers]
        asked = np.flatnonzero((lacks & (self.sources[numbers] < 0)).any(axis=1))
        names = [self.schema.names[at] for at in np.flatnonzero(lacks[asked].any(axis=0))]
        found = self._look_up(rows, asked, names)
        refused: dict[int, str] = {}
        for index in np.flatnonzero(lacks.any(axis=0)).tolist():
            mine = np.flatnonzero(lacks[:, index])
            values = [self._value(index, int(numbers[row]), int(row), found) for row in mine]
            rows = _replace_values(rows, index, mine, values)
            if not is_optional(self.schema.field(index)):
                lost = [int(row) for row, one in zip(mine, values, strict=True) if one is None]
                refused |= {row: self._no_row(rows, row) for row in lost}
        return Filled(rows, refused)

    def _look_up(self, rows: pa.Table, asked: Ints, names: list[str]) -> dict[int, pa.Table]:
        if not len(asked):
            return {}
        stored, places = self.stored.values(rows.select(self.key).take(pa.array(asked)), names)
        pairs = zip(asked.tolist(), places.tolist(), strict=True)
        return {row: stored.slice(place, 1) for row, place in pairs if place >= 0}

    def _value(
        self, index: int, number: int, row: int, found: Mapping[int, pa.Table]
    ) -> pa.Array | None:
        source = int(self.sources[number, index])
        if source >= 0 and self.gone[source]:
            return None
        if source >= 0:
            return self.rows.column(index).slice(source, 1).chunk(0)
        table = found.get(row)
        return None if table is None else table.column(self.schema.names[index]).chunk(0)

    def _no_row(self, rows: pa.Table, row: int) -> str:
        return f"{rows.column(UNKNOWN)[row]}; and the table has no row of this key with the value"


def _absent_cells(rows: pa.Table, columns: int) -> Bools:
    (batch,) = rows.select([ABSENT]).combine_chunks().to_batches()
    mask, absent = matrix(batch, columns)
    return absent[mask]


def _is_last(group: Ints) -> Bools:
    everyone = np.ones(len(group), np.bool_)
    found: Bools = last(group, everyone)[group] == np.arange(len(group))
    return found


def _sources(group: Ints, lacks: Bools) -> Ints:
    order = np.argsort(group, kind="stable")
    begins = np.searchsorted(group[order], group[order])  # of each row where its key begins
    found = np.empty(lacks.shape, np.int64)
    for index, column in enumerate(lacks.T):
        places = np.where(column[order], -1, np.arange(len(order)))
        newest = np.maximum.accumulate(places)
        found[order, index] = np.where(newest >= begins, order[newest], -1)
    return found


def _replace_values(
    rows: pa.Table, index: int, mine: Ints, values: Sequence[pa.Array | None]
) -> pa.Table:
    """The rows with these values in one column; None is null."""
    column = rows.column(index).combine_chunks()
    places = np.arange(len(column))
    places[mine] = len(column) + np.arange(len(mine))
    null = pa.nulls(1, column.type)
    whole = pa.concat_arrays([column, *(null if one is None else one for one in values)])
    return rows.set_column(index, rows.schema.field(index), whole.take(pa.array(places)))
