"""The tables of a view in one micro-batch: changes are merged into one after the other.

Changes of few keys are merged on the driver, beside the files that a table has; those of many are
merged by one job for each table, which writes every bucket that has changed anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from msgspec.structs import replace

from dataflow_assets import failpoints
from dataflow_assets.languages.sql.engine.changes import concatenate
from dataflow_assets.languages.sql.state import tables
from dataflow_assets.languages.sql.state.closing import Load, close_windows, ends, with_first_end
from dataflow_assets.languages.sql.state.driver import FOLDED, QueryDriver
from dataflow_assets.languages.sql.state.hops import Flowing, Hop, MovedRows
from dataflow_assets.languages.sql.state.manifest import StateFile, StateTable
from dataflow_assets.languages.sql.state.staged import StagedState, all_changes, stage
from dataflow_assets.languages.sql.state.tasks import (
    MergeBucket,
    StateDone,
    StatePlace,
    load,
    part,
    run,
)


@dataclass
class _PendingMerge:
    """The changes of a table that were not merged yet."""

    held: list[pa.Table] = field(default_factory=list)
    staged: list[StagedState] = field(default_factory=list)

    @property
    def count(self) -> int:
        held: int = sum(one.num_rows for one in self.held)
        return held + sum(sum(one.rows) for one in self.staged)

    @property
    def size(self) -> int:
        held: int = sum(one.nbytes for one in self.held)
        return held + sum(one.size for one in self.staged)


class Merges:
    """The tables and what is to be merged into them.

    `parts`: frozen rows of the target. `buckets`: by the table how many it has behind this
    micro-batch.
    """

    def __init__(
        self,
        flowing: Flowing,
        place: StatePlace,
        known: Mapping[str, StateTable],
        driver: QueryDriver,
    ) -> None:
        """`known`: the tables before; empty: nothing is kept yet."""
        self._flowing, self._place, self._files = flowing, place, place.files()
        self._cache, self._spark, self._limits = driver.cache, driver.spark, driver.limits
        empty = StateTable((None,) * self._limits.buckets)
        self.tables = {hop.table: known.get(hop.table, empty) for hop in flowing.hops}
        self.buckets = {name: self._bucket_count(one) for name, one in self.tables.items()}
        self.parts: list[StateFile] = []
        self._pending = {name: _PendingMerge() for name in self.tables}

    def _bucket_count(self, table: StateTable) -> int:
        rows, buckets = table.rows, len(table.buckets)
        while rows > buckets * self._limits.full:
            buckets *= 2
        return buckets

    def hold(self, changes: Mapping[str, pa.Table]) -> None:
        for name, some in changes.items():
            self._pending[name].held.append(some)

    def take(self, done: StateDone) -> None:
        for name, staged in done.staged.items():
            self._pending[name].staged.append(staged)
        self.parts += done.parts

    def merge(self, hop: Hop, reached: int | None) -> None:
        """Merges into one table all that has changed of it; those in front of it come first.

        `reached`: the watermark behind the micro-batch.
        """
        pending, table = self._pending[hop.table], self.tables[hop.table]
        final = None if reached is None or not self._flowing.is_windowed(hop) else reached + 1
        ending = table.rows if ends(table, final) else 0
        changes = self._few(pending, ending)
        if changes is None:
            self._merge_in_tasks(hop, pending, final)
            return
        if changes.num_rows or ending:
            self._merge_here(hop, changes, final)
        table = self.tables[hop.table]
        recent = sum(one.rows for one in table.recent)
        if recent > self._limits.most_recent or len(table.recent) > self._limits.most_files:
            self._merge_in_tasks(hop, _PendingMerge(), final)

    def _few(self, pending: _PendingMerge, ending: int) -> pa.Table | None:
        """All changes, where they are of few keys and small; many changes may be of few keys."""
        most = self._limits.few - ending
        if pending.count > FOLDED * most or pending.size > self._limits.few_bytes:
            return None
        changes = concatenate([*pending.held, all_changes(self._files, pending.staged)])
        few = changes.num_rows <= most or len(changes["k"].unique()) <= most
        return changes if few else None

    def _merge_here(self, hop: Hop, changes: pa.Table, final: int | None) -> None:
        table, load = self.tables[hop.table], self._loading(hop)
        old = tables.find(table, changes["k"].unique(), load)
        moved = self._flowing.merge(hop, old.select(["k", "v"]), changes)
        if final is not None:
            kept = tables.final_rows(table, final, load) if ends(table, final) else {}
            moved = close_windows(self._flowing, hop, moved, kept, final)
        failpoints.reach("view.merged")
        if moved.puts.num_rows:
            rows = tables.touch(moved.puts, self._flowing.now)
            content = tables.encode(rows)
            file = self._files.write(self._place.name(hop.table), content, rows.num_rows)
            self._cache.put(file.name, rows)
            table = replace(table, recent=(*table.recent, file))
        if self._flowing.is_windowed(hop):
            table = with_first_end(table, moved.puts, final, load)
        self.tables[hop.table] = table
        self._take(moved)

    def _take(self, moved: MovedRows) -> None:
        self.hold(moved.changes)
        self.parts += part(self._files, self._place, moved.output)

    def _loading(self, hop: Hop) -> Load:
        since = self._flowing.since(hop)

        def read(file: StateFile) -> pa.Table:
            return tables.alive(self._cache.get(file, lambda: load(self._files, file)), since)

        return read

    def _merge_in_tasks(self, hop: Hop, pending: _PendingMerge, final: int | None) -> None:
        """Every bucket that has changed, or of which something is kept beside it, is written."""
        table, count = self.tables[hop.table], self.buckets[hop.table]
        if pending.held:
            name = self._place.changes(hop.table)
            pending.staged.append(stage(self._files, name, concatenate(pending.held), count))
        staged = tuple(pending.staged)
        everything = bool(table.recent) or count != len(table.buckets) or ends(table, final)
        touched = {bucket for one in staged for bucket in one.buckets}
        chosen = range(count) if everything else sorted(touched)
        tasks = [
            MergeBucket(self._flowing, hop, table, bucket, staged, self._place, self.buckets, final)
            for bucket in chosen
        ]
        kept: list[StateFile | None] = [None] * count
        if count == len(table.buckets):
            kept = list(table.buckets)
        firsts = [] if everything or table.first is None else [table.first]
        for done in sorted(run(self._spark(), tasks), key=lambda one: one.bucket):
            kept[done.bucket] = done.kept
            firsts += [] if done.first is None else [done.first]
            self.take(done)
        self.tables[hop.table] = StateTable(tuple(kept), first=min(firsts, default=None))
