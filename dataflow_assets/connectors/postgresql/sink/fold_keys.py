"""Rows of one key folded into one, so that applying the fold equals applying the rows in order.

The last row wins, column by column: what a row did not carry comes from an earlier row of its key.
A soft delete keeps the last image and marks it, a hard delete forgets what came before it, an
insert after a delete brings the row back. `ifNewer` keeps the highest version; where rows carry
different columns it applies them in rounds, for the stored version decides about each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.sink import key_order
from dataflow_assets.connectors.postgresql.sink.key_equality import varies
from dataflow_assets.connectors.postgresql.sink.upsert_rules import (
    DELETED,
    GROUP,
    STORED,
    FoldedRows,
    PostgresqlRules,
)
from dataflow_assets.sdk.key_folding import (
    Bools,
    Ints,
    carriers,
    deletes,
    distinct,
    last,
    matrix,
    outliving,
    updates,
)


def steps(rows: pa.RecordBatch, group: Ints, rules: PostgresqlRules) -> Iterator[FoldedRows]:
    whole = Batch.of(_as_inserted(rows, group, rules), group, rules)
    if rules.version is None:
        yield from whole.steps()
        return
    best = whole.newest(rules.version)
    while best.rows.num_rows:
        first = best.firsts()
        yield from best.only(first).steps()
        best = best.only(~first)


@dataclass(frozen=True)
class Batch:
    """Rows in order, with their key's number, what they lack and whether they delete."""

    rules: PostgresqlRules
    rows: pa.RecordBatch
    group: Ints
    mask: Ints
    absent: Bools  # by mask and column
    deleted: Bools
    updated: Bools

    @classmethod
    def of(cls, rows: pa.RecordBatch, group: Ints, rules: PostgresqlRules) -> Batch:
        mask, absent = matrix(rows, len(rules.schema))
        named = rows.select(rules.schema.names)
        return cls(rules, named, group, mask, absent, deletes(rows), updates(rows))

    @property
    def plain(self) -> bool:
        return not self.absent.any() and not self.deleted.any()

    def only(self, wanted: Bools) -> Batch:
        if wanted.all():
            return self
        rows = self.rows.filter(pa.array(wanted))
        group, mask = self.group[wanted], self.mask[wanted]
        deleted, updated = self.deleted[wanted], self.updated[wanted]
        return Batch(self.rules, rows, group, mask, self.absent, deleted, updated)

    def firsts(self) -> Bools:
        found = np.zeros(len(self.group), np.bool_)
        found[np.unique(self.group, return_index=True)[1]] = True
        return found

    def steps(self) -> Iterator[FoldedRows]:
        """One row per key; the rows of a plain batch go as they are."""
        if self.plain:
            rows = self._latest()
            names = tuple(self.rules.schema.names)
            whole = FoldedRows("upsert", names, key_order.sorted_by(rows, self.rules.key))
            yield self._mark(whole)
            return
        yield from self._deletes()
        yield from map(self._mark, self._merge())

    def _mark(self, step: FoldedRows) -> FoldedRows:
        stored = self._is_stored[step.rows.column(GROUP).to_numpy()]
        return replace(step, rows=step.rows.append_column(STORED, pa.array(stored)))

    @cached_property
    def _is_stored(self) -> Bools:
        first = np.zeros(int(self.group.max(initial=-1)) + 1, np.int64)
        first[self.group[::-1]] = np.arange(len(self.group))[::-1]
        if not self.rules.hard:
            return self.updated[first] | self.deleted[first]
        return self.updated[first] & (last(self.group, self.deleted) < 0)

    def _latest(self) -> pa.RecordBatch:
        """The last row of each key, whole.

        In a later round some keys have no row left, and the others come in any order.
        """
        chosen = last(self.group, np.ones(len(self.group), np.bool_))
        chosen = chosen[chosen >= 0]
        is_whole = np.array_equal(chosen, np.arange(len(self.group)))
        rows = self.rows if is_whole else self.rows.take(pa.array(chosen))
        return rows.append_column(GROUP, pa.array(self.group[chosen]))

    def _deletes(self) -> Iterator[FoldedRows]:
        """Hard: every key that was deleted at any time. Soft: keys that were only deleted."""
        final = last(self.group, self.deleted)
        final = final[final >= 0]
        if not self.rules.hard:
            final = final[~np.isin(self.group[final], self.group[~self.deleted])]
        if len(final):
            rows = self.rows.select(self.rules.key).take(pa.array(final))
            rows = rows.append_column(GROUP, pa.array(self.group[final]))
            verb: Literal["delete", "mark"] = "delete" if self.rules.hard else "mark"
            yield FoldedRows(verb, self.rules.key, key_order.sorted_by(rows, self.rules.key))

    def _merge(self) -> Iterator[FoldedRows]:
        """One row per key, each column from the last row that carried it."""
        alive = outliving(self.group, self.deleted) if self.rules.hard else ~self.deleted
        places = carriers(self.group, alive, self.mask, self.absent)
        names = self.rules.schema.names
        final = last(self.group, np.ones(len(self.group), np.bool_))
        if self.rules.soft:
            self._settle_soft(places, names.index(self.rules.soft), final)
        kept = np.flatnonzero(last(self.group, alive) >= 0)
        yield from self._by_columns(places[kept], kept, final[kept])

    def _settle_soft(self, places: Ints, index: int, final: Ints) -> None:
        # Only the last row speaks about deletion: an earlier mark does not survive an insert.
        silent = self.deleted[final] | self.absent[self.mask[final], index]
        places[:, index] = np.where(silent, -1, final)

    def _by_columns(self, places: Ints, kept: Ints, final: Ints) -> Iterator[FoldedRows]:
        names = self.rules.schema.names
        present, which = distinct(places >= 0)
        for number, columns in enumerate(present):
            mine = which == number
            arrays = [
                self.rows.column(index).take(pa.array(places[mine, index]))
                for index in np.flatnonzero(columns).tolist()
            ]
            carried = [names[index] for index in np.flatnonzero(columns).tolist()]
            latest = final[mine]
            arrays.append(pa.array(kept[mine]))
            rows = pa.RecordBatch.from_arrays(arrays, names=[*carried, GROUP])
            if self._marks(carried, latest):
                rows = rows.append_column(DELETED, pa.array(self.deleted[latest]))
            yield FoldedRows("upsert", tuple(carried), key_order.sorted_by(rows, self.rules.key))

    def _marks(self, carried: list[str], latest: Ints) -> bool:
        """True where a mark has to be set, or taken away though no row speaks of it."""
        soft = self.rules.soft
        return soft is not None and (soft not in carried or bool(self.deleted[latest].any()))

    def newest(self, version: str) -> Batch:
        """Without the rows that an earlier or higher version of the same run makes void.

        A run is a key's rows one after another that carry the same columns; a delete ends a run.
        """
        values = key_order.ranks(self.rows.column(version), self.rules.schema.field(version))
        if values is None:
            return self
        runs = self._runs()
        index = self.rules.schema.names.index(version)
        values = pc.if_else(pa.array(self.absent[self.mask, index]), None, values)
        # Equal versions: the first is not outdone. No version: nothing says no to the last.
        row = np.arange(len(runs))
        tie = np.where(values.is_null().to_numpy(zero_copy_only=False), -row, row)
        order = pc.sort_indices(
            pa.table({"run": runs, "version": values, "tie": tie}),
            [("run", "ascending"), ("version", "descending"), ("tie", "ascending")],
        ).to_numpy()
        first = np.unique(runs[order], return_index=True)[1]
        wanted = np.zeros(len(runs), np.bool_)
        wanted[order[first]] = True
        return self.only(wanted)

    def _runs(self) -> Ints:
        if self.plain:
            return self.group
        order = np.argsort(self.group, kind="stable")
        group, mask, deleted = self.group[order], self.mask[order], self.deleted[order]
        starts = (np.diff(group) != 0) | (np.diff(mask) != 0) | deleted[1:] | deleted[:-1]
        runs = np.empty(len(order), np.int64)
        runs[order] = np.concatenate([[0], np.cumsum(starts)])
        return runs


def _as_inserted(rows: pa.RecordBatch, group: Ints, rules: PostgresqlRules) -> pa.RecordBatch:
    """Each row with the key as the row wrote it that inserts its key.

    A stored row keeps the spelling of its key by which it was inserted, whoever updates it.
    """
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
