"""GROUP BY: changes of rows into what is kept of them, and groups into the rows that they are.

Everything here is a pure function of what is kept and what has changed. Changes are added up, not
listed, and many of them are handled at once, as columns. So the order of rows and the borders of
micro-batches do not matter.

| kept | key | value |
|---|---|---|
| `rows` of an upsert table | its PRIMARY KEY | what the first stage sees of the row |
| `counted` rows of changes without a PRIMARY KEY | the row | how many there are |
| `distinct` of a stage | group, number of the aggregate, argument | how many rows have it |
| `groups` of a stage | group | its rows, its aggregates, and the row that was passed on last |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.accumulators import accumulator
from dataflow_assets.languages.sql.engine.changes import (
    BINARY,
    KEPT,
    Ints,
    added_up,
    by_key,
    changes,
    looked_up,
    without_zeros,
)
from dataflow_assets.languages.sql.engine.function import Row
from dataflow_assets.languages.sql.engine.kept import FlinkKept
from dataflow_assets.languages.sql.engine.stages import FlinkStage
from dataflow_assets.languages.sql.engine.values import (
    Codec,
    pack,
    pack_rows,
    unpack,
    unpack_all,
    unpack_columns,
)

Finish = Callable[[Row], bytes | None]
"""From a group's keys and results to what is passed on; None: no row. Raises RejectedRecord."""
FOLDED = -1
"""In place of the number of an aggregate: what rows come to in all aggregates."""


class Signed(NamedTuple):
    """Rows on their way into a stage: each as its group and its arguments, packed."""

    rows: Sequence[bytes]
    times: Ints
    """How many more there are of each; below 0 less."""


def sign(before: Sequence[bytes], now: Sequence[bytes]) -> Signed:
    """Rows that go, and rows that come."""
    times = np.ones(len(before) + len(now), np.int64)
    times[: len(before)] = -1
    return Signed([*before, *now], times)


@dataclass(frozen=True)
class FlinkMerged:
    """The keys that have changed, with their old and new rows."""

    puts: pa.Table
    """What is kept from now on."""
    rows: Signed
    """Of `rows`: what comes of it, for the first stage."""


def merge_rows(old: pa.Table, arrived: pa.Table, *, several: bool) -> FlinkMerged:
    """The latest row of each key in place of the one before.

    Args:
        old: by PRIMARY KEY what the first stage has seen of the row.
        arrived: the latest change of each key; null: deleted, or left out by WHERE.
        several: whether a row is a list of rows: those of its windows, or of its items. What goes
            from a window that is final is not there.
    """
    before, now = looked_up(old, arrived["k"]), arrived["x"]
    same = pc.fill_null(pc.equal(before, now), pc.and_(before.is_null(), now.is_null()))
    changed = pc.invert(same)
    gone, come = (one.filter(changed).drop_null().to_pylist() for one in (before, now))
    if several:
        gone, come = (list(chain.from_iterable(unpack_all(one))) for one in (gone, come))
    puts = pa.table([arrived["k"].filter(changed), now.filter(changed)], schema=KEPT)
    return FlinkMerged(puts, sign(gone, come))


def merge_distinct(stage: FlinkStage, old: pa.Table, given: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Counts the rows of each value; a value that comes or goes changes its group.

    Returns:
        What is kept from now on, and changes of the groups of the stage.
    """
    keys, before, more = _numbers(old, given)
    now = np.maximum(0, before + more)
    flips = (now > 0) != (before > 0)
    signs = np.where(now > 0, 1, -1)[flips]
    groups = _of_groups(stage, keys.filter(pa.array(flips)).to_pylist(), signs)
    return _recount(keys, before, now), groups


def merge_counted(old: pa.Table, given: pa.Table) -> FlinkMerged:
    """Returns how many rows there are of each kind; one that goes before it comes is waited for.

    Without a key the changes of a row may be in several partitions, and read in any order.
    """
    keys, before, more = _numbers(old, given)
    now = before + more
    times = np.maximum(0, now) - np.maximum(0, before)
    rows = keys.filter(pa.array(times != 0)).to_pylist()
    return FlinkMerged(_recount(keys, before, now), Signed(rows, times[times != 0]))


def _numbers(old: pa.Table, given: pa.Table) -> tuple[pa.ChunkedArray, Ints, Ints]:
    """Keys that change, how many are kept of each, and how many more there are."""
    counted = added_up(given)
    old_numbers = looked_up(old, counted["k"]).to_pylist()
    before = np.array([0 if one is None else unpack(one) for one in old_numbers], np.int64)
    return counted["k"], before, counted["n"].to_numpy()


def _recount(keys: pa.ChunkedArray, before: Ints, now: Ints) -> pa.Table:
    values = [pack(one) if one else None for one in now[now != before].tolist()]
    return pa.table([keys.filter(pa.array(now != before)), pa.array(values, BINARY)], schema=KEPT)


def _of_groups(stage: FlinkStage, keys: Sequence[bytes], signs: Ints) -> pa.Table:
    """Values that have come or gone as changes of their groups."""
    groups, numbers, values = unpack_columns([key[stage.front :] for key in keys], 3)
    counts = [one.name == "COUNT" for one in stage.calls]
    seen = [True if counts[at] else value for at, value in zip(numbers, values, strict=True)]
    return added_up(changes(groups, pack_rows([numbers, seen]), signs))


@dataclass
class MergedGroups:
    """The groups of a stage that have changed."""

    puts: dict[bytes, bytes | None] = field(default_factory=dict)
    """What is kept from now on; None: nothing any more."""
    rows: list[tuple[bytes, bytes | None, bytes | None]] = field(default_factory=list)
    """Groups whose row is another one: the group, the row before, the row now."""
    refused: list[tuple[bytes, str]] = field(default_factory=list)
    """Groups that have no row because it cannot be computed, and why."""

    def sign(self) -> Signed:
        """Its rows on their way into the stage behind it."""
        gone = [before for _, before, _ in self.rows if before is not None]
        come = [now for _, _, now in self.rows if now is not None]
        return sign(gone, come)


@dataclass(frozen=True)
class Merging(ABC):
    """The keys of a stage, what is kept of each, and what its rows become."""

    stage: FlinkStage
    finish: Finish

    @cached_property
    def _keys(self) -> Codec:
        return Codec([one.type for one in self.stage.keys])

    def merge(self, old: pa.Table, given: pa.Table) -> MergedGroups:
        """The keys that have changed.

        Returns:
            `rows`: of each key that has changed what was passed on before, and what is now.
        """
        found, known = MergedGroups(), by_key(old)
        for group, counted in by_group(given).items():
            self._one(group, known.get(group), counted, found)
        return found

    @abstractmethod
    def _one(
        self,
        group: bytes,
        old: bytes | None,
        counted: Sequence[tuple[Any, int]],
        merged: MergedGroups,
    ) -> None:
        """Adds one key to `merged`: what was kept of it, and what has changed.

        Changes that cancel each other change nothing: its row is not computed again.
        """


@dataclass(frozen=True)
class FlinkGroups(Merging):
    """The groups of a stage, and what their rows become."""

    @cached_property
    def _accumulators(self) -> list[FlinkKept]:
        return aggregates(self.stage)

    @override
    def _one(
        self,
        group: bytes,
        known: bytes | None,
        counted: Sequence[tuple[Any, int]],
        found: MergedGroups,
    ) -> None:
        before, sent, values = self._read(known)
        rows = before
        for (at, *given), times in counted:
            if at == FOLDED:
                rows += given[0] * times
                self._add(values, given[1:], times)
            else:
                self._accumulators[at].add(values[at], given[0], times)
        results = self._results(values)
        if rows == before and (not rows or pack([rows, sent, *values]) == known):
            return
        now = self._row(group, results, found) if rows > 0 else None
        stored = pack([rows, now, *values]) if rows > 0 else None
        if stored != known:
            found.puts[group] = stored
        if now != sent:
            found.rows.append((group, sent, now))

    def _read(self, old: bytes | None) -> tuple[int, bytes | None, list[Any]]:
        if old is None:
            return 0, None, [one.empty() for one in self._accumulators]
        rows, sent, *values = unpack(old)
        return rows, sent, values

    def _add(self, values: list[Any], folded: Sequence[Any], times: int) -> None:
        for kept_one, value, one in zip(self._accumulators, values, folded, strict=True):
            kept_one.merge(value, one, times)

    def _results(self, values: list[Any]) -> list[Any]:
        return [one.result(value) for one, value in zip(self._accumulators, values, strict=True)]

    def _row(self, group: bytes, results: list[Any], merged: MergedGroups) -> bytes | None:
        try:
            return self.finish([*self._keys.unpack(group[self.stage.front :]), *results])
        except RejectedRecord as error:
            merged.refused.append((group, error.reason))
            return None


@dataclass(frozen=True)
class WindowGroups(FlinkGroups):
    """Groups that are passed on once, when their window is final."""

    def final(self, ended: Mapping[bytes, bytes]) -> MergedGroups:
        """Returns what is passed on of groups that are final.

        Args:
            ended: what was kept of them; nothing is from now on.

        Returns:
            `rows`: of each group the row that it is.
        """
        merged = MergedGroups()
        for group, known in ended.items():
            _, _, values = self._read(known)
            row = super()._row(group, self._results(values), merged)
            if row is not None:
                merged.rows.append((group, None, row))
        return merged

    def _row(self, group: bytes, results: list[Any], merged: MergedGroups) -> bytes | None:  # noqa: ARG002
        return None


def aggregates(stage: FlinkStage) -> list[FlinkKept]:
    """Returns how the aggregates of a stage are kept."""
    return [accumulator(one, retracts=stage.retracts) for one in stage.calls]


def by_group(given: pa.Table) -> dict[bytes, list[tuple[Any, int]]]:
    """Returns the changes of each group, unpacked, and how many times each came."""
    found: dict[bytes, list[tuple[Any, int]]] = {}
    columns = without_zeros(added_up(given)).to_pydict()
    besides = unpack_all(columns["x"])
    for group, beside, times in zip(columns["k"], besides, columns["n"], strict=True):
        found.setdefault(group, []).append((beside, times))
    return found
