"""Rows of one key folded into one, so that applying the fold equals applying the rows in order.

The last row wins, column by column: what a row did not carry comes from an earlier row of its key.
A soft delete keeps the last image and marks it, a hard delete forgets what came before it, an
insert after a delete brings the row back. `ifNewer` keeps the highest version; where rows carry
different columns it applies them in rounds, for the stored version decides about each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.absent import Bools, matrix
from dataflow_assets.connectors.postgresql.table import TYPE, key_of
from dataflow_assets.connectors.postgresql.trial import ORDER
from dataflow_assets.contracts import DELETE, KIND, OP

if TYPE_CHECKING:
    from dataflow_assets.connectors.postgresql.sink import PostgresqlSink

GROUP = "_dataflow_group"
DELETED = "_dataflow_deleted"

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rules:
    """What the manifest says about keys, versions and deletes."""

    schema: pa.Schema
    key: tuple[str, ...]
    version: str | None = None
    soft: str | None = None
    hard: bool = False

    @classmethod
    def of(cls, sink: PostgresqlSink, schema: pa.Schema) -> Rules:
        """The rules of a sink."""
        version = sink.upsert_version_column if sink.upsert_strategy == "ifNewer" else None
        hard = sink.delete_mode == "hard"
        return cls(schema, key_of(schema), version, None if hard else sink.soft_delete_column, hard)

    @property
    def deletes(self) -> bool:
        """True where deletes mean something."""
        return self.hard or self.soft is not None


@dataclass(frozen=True)
class Step:
    """Rows for one statement: distinct keys, in key order, all carrying the same columns."""

    verb: Literal["upsert", "mark", "delete"]
    columns: tuple[str, ...]
    rows: pa.RecordBatch


def groups(rows: pa.RecordBatch, rules: Rules) -> Ints:
    """The number of each row's key, from 0 without gaps."""
    codes = np.zeros(rows.num_rows, np.int64)
    for position, name in enumerate(rules.key):
        encoded = _comparable(rows.column(name), rules.schema.field(name)).dictionary_encode()
        found = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = found if position == 0 else _dense(codes * len(encoded.dictionary) + found)
    return codes


def steps(rows: pa.RecordBatch, group: Ints, rules: Rules) -> Iterator[Step]:
    """What to run, in this order."""
    whole = Batch.of(rows, group, rules)
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

    rules: Rules
    rows: pa.RecordBatch
    group: Ints
    mask: Ints
    absent: Bools  # by mask and column
    deleted: Bools

    @classmethod
    def of(cls, rows: pa.RecordBatch, group: Ints, rules: Rules) -> Batch:
        """Reads the system columns."""
        deleted = np.zeros(rows.num_rows, np.bool_)
        if OP in rows.schema.names:
            op = pc.equal(rows.column(OP), DELETE).fill_null(False)
            deleted = op.to_numpy(zero_copy_only=False)
        mask, absent = matrix(rows, len(rules.schema))
        return cls(rules, rows.select(rules.schema.names), group, mask, absent, deleted)

    @property
    def plain(self) -> bool:
        """No row lacks anything, none deletes."""
        return not self.absent.any() and not self.deleted.any()

    def only(self, wanted: Bools) -> Batch:
        """Some of the rows."""
        if wanted.all():
            return self
        rows = self.rows.filter(pa.array(wanted))
        group, mask, deleted = self.group[wanted], self.mask[wanted], self.deleted[wanted]
        return Batch(self.rules, rows, group, mask, self.absent, deleted)

    def firsts(self) -> Bools:
        """The first row of each key."""
        found = np.zeros(len(self.group), np.bool_)
        found[np.unique(self.group, return_index=True)[1]] = True
        return found

    def steps(self) -> Iterator[Step]:
        """One row per key; the rows of a plain batch go as they are."""
        if self.plain:
            chosen = _last(self.group, np.ones(len(self.group), np.bool_))
            rows = self.rows if len(chosen) == len(self.group) else self.rows.take(pa.array(chosen))
            rows = rows.append_column(GROUP, pa.array(self.group[chosen]))
            rows = rows.append_column(ORDER, pa.array(chosen))
            yield Step("upsert", tuple(self.rules.schema.names), sort(rows, self.rules.key))
            return
        yield from self._deletes()
        yield from self._merged()

    def _deletes(self) -> Iterator[Step]:
        """Hard: every key that was deleted at any time. Soft: keys that were only deleted."""
        last = _last(self.group, self.deleted)
        last = last[last >= 0]
        if not self.rules.hard:
            last = last[~np.isin(self.group[last], self.group[~self.deleted])]
        if len(last):
            rows = self.rows.select(self.rules.key).take(pa.array(last))
            rows = rows.append_column(GROUP, pa.array(self.group[last]))
            verb: Literal["delete", "mark"] = "delete" if self.rules.hard else "mark"
            yield Step(verb, self.rules.key, sort(rows, self.rules.key))

    def _alive(self) -> Bools:
        """Rows that leave something in the table."""
        if not self.rules.hard or not self.deleted.any():
            return ~self.deleted
        order = np.arange(len(self.group))
        return order > _last(self.group, self.deleted)[self.group]

    def _merged(self) -> Iterator[Step]:
        """One row per key, each column from the last row that carried it."""
        alive = self._alive()
        places = np.stack(
            [
                _last(self.group, alive & ~self.absent[self.mask, index])
                for index in range(len(self.rules.schema))
            ],
            axis=1,
        )
        names = self.rules.schema.names
        final = _last(self.group, np.ones(len(self.group), np.bool_))
        if self.rules.soft:
            self._settle_soft(places, names.index(self.rules.soft), final)
        kept = np.flatnonzero(_last(self.group, alive) >= 0)
        yield from self._by_columns(places[kept], kept, final[kept])

    def _settle_soft(self, places: Ints, index: int, final: Ints) -> None:
        # Only the last row speaks about deletion: an earlier mark does not survive an insert.
        silent = self.deleted[final] | self.absent[self.mask[final], index]
        places[:, index] = np.where(silent, -1, final)

    def _by_columns(self, places: Ints, kept: Ints, final: Ints) -> Iterator[Step]:
        names = self.rules.schema.names
        present, which = np.unique(places >= 0, axis=0, return_inverse=True)
        for number, columns in enumerate(present):
            mine = which.reshape(-1) == number
            arrays = [
                self.rows.column(index).take(pa.array(places[mine, index]))
                for index in np.flatnonzero(columns).tolist()
            ]
            carried = [names[index] for index in np.flatnonzero(columns).tolist()]
            last = final[mine]
            arrays += [pa.array(kept[mine]), pa.array(last), pa.array(self.deleted[last])]
            rows = pa.RecordBatch.from_arrays(arrays, names=[*carried, GROUP, ORDER, DELETED])
            yield Step("upsert", tuple(carried), sort(rows, self.rules.key))

    def newest(self, version: str) -> Batch:
        """Without the rows that an earlier or higher version of the same run makes void.

        A run is a key's rows one after another that carry the same columns; a delete ends a run.
        """
        values = _ranked(self.rows.column(version), self.rules.schema.field(version))
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


def sort(rows: pa.RecordBatch, key: tuple[str, ...]) -> pa.RecordBatch:
    """In key order: two slices that lock the same keys then meet in the same order."""
    order = pc.sort_indices(rows, [(name, "ascending") for name in key]).to_numpy()
    if (np.diff(order.astype(np.int64)) == 1).all():
        return rows
    return rows.take(pa.array(order))


def _last(group: Ints, wanted: Bools) -> Ints:
    """For each key its last wanted row, or -1."""
    found = np.full(int(group.max(initial=-1)) + 1, -1, np.int64)
    rows = np.flatnonzero(wanted)
    found[group[rows]] = rows  # of equal places the last assignment stays
    return found


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
        numbers = [seen.setdefault(_decimal(text), len(seen)) for text in values.to_pylist()]
        return pa.array(numbers, pa.int64())
    if metadata.get(TYPE) == b"uuid":
        return pc.replace_substring(pc.utf8_lower(values), "-", "")
    return values


def _ranked(values: pa.Array, field: pa.Field) -> pa.Array | None:
    """Numbers that sort as PostgreSQL sorts the versions; None where only it can tell."""
    if (field.metadata or {}).get(KIND) == b"numeric":
        encoded = values.dictionary_encode()
        numbers = [_decimal(text) for text in encoded.dictionary.to_pylist()]
        rank = {number: place for place, number in enumerate(sorted(set(numbers)))}
        return pa.array([rank[number] for number in numbers], pa.int64()).take(encoded.indices)
    return None if pa.types.is_string(field.type) else values


def _decimal(text: str) -> Decimal:
    """Exact; exponents that no numeric column holds are all the same, and refused by it."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("-Infinity" if text.startswith("-") else "Infinity")
