"""The way of changes through a view: each hop merges what is kept in one table with its changes.

Pure functions: what they take and give are columns of keys, bytes and numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.languages.sql.engine.changes import (
    KEPT,
    added_up,
    changes,
    concatenate,
    kept_rows,
    latest,
    looked_up,
)
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.engine.group_rows import groups, key_of, named_group
from dataflow_assets.languages.sql.engine.merging import (
    MergedGroups,
    Signed,
    WindowGroups,
    merge_counted,
    merge_distinct,
    merge_rows,
    sign,
)
from dataflow_assets.languages.sql.engine.ranking import Ranking, best
from dataflow_assets.languages.sql.engine.spread import spread
from dataflow_assets.languages.sql.engine.values import unpack
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.engine.windows import millis
from dataflow_assets.languages.sql.state.output import DELETED, REFUSED, UPSERTED, OutputRow

ROWS, COUNTED = "rows", "counted"


@dataclass(frozen=True)
class Hop:
    """One table of a view, and what is merged into it."""

    kind: Literal["rows", "counted", "distinct", "groups"]
    stage: int = 0

    @property
    def table(self) -> str:
        return self.kind if self.of_rows else f"{self.kind}-{self.stage}"

    @property
    def of_rows(self) -> bool:
        """Returns whether it is in front of all stages."""
        return self.kind in (ROWS, COUNTED)


def stage_of(table: str) -> int | None:
    """The stage whose groups a table has; None for a table of something else."""
    kind, _, number = table.partition("-")
    return int(number) if kind == "groups" else None


def hops(view: ViewPlan) -> Iterator[Hop]:
    """The tables of a view, each before those that take what comes of it."""
    if view.changelog:
        yield Hop("rows")
    if view.counts_rows:
        yield Hop("counted")
    for number, stage in enumerate(view.stages):
        if stage.apart:
            yield Hop("distinct", number)
        yield Hop("groups", number)


NOTHING = KEPT.empty_table()


@dataclass
class MovedRows:
    """The result of a hop."""

    puts: pa.Table
    """What is kept from now on, by keys that have changed."""
    changes: dict[str, pa.Table] = field(default_factory=dict)
    """By the table that they are of."""
    output: list[OutputRow] = field(default_factory=list)

    def and_then(self, more: MovedRows) -> MovedRows:
        """With what came of the same table afterwards."""
        names = {*self.changes, *more.changes}
        changes = {
            one: concatenate(some.changes[one] for some in (self, more) if one in some.changes)
            for one in sorted(names)
        }
        return MovedRows(self.puts, changes, [*self.output, *more.output])


@dataclass(frozen=True)
class Flowing:
    """A view in one micro-batch."""

    view: ViewPlan
    environment: Environment
    forgotten_upto: int = 0
    """What was touched then, or before, is forgotten; in milliseconds, 0: nothing is."""

    @cached_property
    def hops(self) -> tuple[Hop, ...]:
        return tuple(hops(self.view))

    @property
    def now(self) -> int:
        """When the micro-batch was planned, in milliseconds."""
        return millis(self.environment.now)

    def since(self, hop: Hop) -> int | None:
        """The time at which what was touched last, or before, is forgotten; None: nothing is."""
        return None if self.is_windowed(hop) else self.forgotten_upto or None

    def _expires(self, hop: Hop) -> bool:
        return bool(self.view.expires) and not self.is_windowed(hop)

    def arriving(self, arrived: pa.Table) -> dict[str, pa.Table]:
        """Returns what was read, as changes of the first tables.

        Args:
            arrived: of an upsert table changes of `rows`; else what the first stage sees of a row,
                as `x`, and how often.
        """
        if self.view.changelog:
            return {ROWS: latest(arrived)}
        counted = added_up(arrived)
        if self.view.counts_rows:
            return {COUNTED: changes(counted["x"], counted["k"], counted["n"])}
        seen = Signed(counted["x"].to_pylist(), counted["n"].to_numpy())
        first = self.view.stages[0]
        if isinstance(first, Ranking) and not first.retracts:
            seen = best(first, seen)
        return self._spread(0, seen)

    def merge(self, hop: Hop, old: pa.Table, given: pa.Table) -> MovedRows:
        """Returns what is kept from now on, and what comes of it.

        Args:
            hop: the table.
            old: what it has for the keys that have changed.
            given: changes of this table, or of a bucket of it: all changes of a key together. One
                of the number 0 changes nothing: its key is touched.
        """
        moved = self._merge(hop, old, given)
        if not self._expires(hop):
            return moved
        as_before = old.filter(pc.invert(pc.is_in(old["k"], moved.puts["k"].combine_chunks())))
        touched = replace(moved, puts=pa.concat_tables([moved.puts, as_before]))
        return touched.and_then(MovedRows(NOTHING, self._touch(hop, old, touched.puts)))

    def _touch(self, hop: Hop, before: pa.Table, now: pa.Table) -> dict[str, pa.Table]:
        """Rows that are passed on as before touch what they are counted in."""
        following = 0 if hop.of_rows else hop.stage + 1
        if hop.kind == "distinct" or following == len(self.view.stages):
            return {}
        if self.view.stages[following].window is not None:
            return {}
        after = looked_up(now, before["k"])
        rows = [
            row
            for one, other in zip(before["v"].to_pylist(), after.to_pylist(), strict=True)
            if other is not None
            for row in {*self._passed_on(hop, one)} & {*self._passed_on(hop, other)}
        ]
        old = self._spread(following, sign([], rows))
        return {table: _touches(some["k"]) for table, some in old.items()}

    def _passed_on(self, hop: Hop, kept: bytes) -> Sequence[bytes]:
        """The rows that a table passes on of a key."""
        return self.view.rows_of(kept) if hop.kind == ROWS else sent_rows(kept)

    def _merge(self, hop: Hop, old: pa.Table, given: pa.Table) -> MovedRows:
        if hop.kind == ROWS:
            merged = merge_rows(old, latest(given), several=self.view.several)
            return MovedRows(merged.puts, self._spread(0, merged.rows))
        if hop.kind == COUNTED:
            merged = merge_counted(old, given)
            return MovedRows(merged.puts, self._spread(0, merged.rows))
        if hop.kind == "distinct":
            puts, following = merge_distinct(self.view.stages[hop.stage], old, given)
            return MovedRows(puts, {Hop("groups", hop.stage).table: following})
        return self._pass(hop, groups(self.view, hop.stage, self.environment).merge(old, given))

    def is_windowed(self, hop: Hop) -> bool:
        """Returns whether the keys of a table begin with the end of their window."""
        return not hop.of_rows and self.view.stages[hop.stage].window is not None

    def close(self, hop: Hop, ended: Mapping[bytes, bytes]) -> MovedRows:
        """Returns what comes of keys whose window is final; nothing is kept of them any more.

        Args:
            hop: a table of windows.
            ended: what was kept under these keys.
        """
        stage = groups(self.view, hop.stage, self.environment)
        if hop.kind == "groups" and isinstance(stage, WindowGroups):
            return self._pass(hop, stage.final(ended))
        return MovedRows(NOTHING)

    def _pass(self, hop: Hop, merged: MergedGroups) -> MovedRows:
        refused = [self._refuse(hop.stage, *one) for one in merged.refused]
        puts = kept_rows(merged.puts)
        if hop.stage + 1 == len(self.view.stages):
            return MovedRows(puts, output=[*self._output_rows(merged), *refused])
        return MovedRows(puts, self._spread(hop.stage + 1, merged.sign()), refused)

    def _spread(self, stage: int, given: Signed) -> dict[str, pa.Table]:
        moved = spread(self.view.stages[stage], given)
        tables = {Hop("distinct", stage): moved.distinct, Hop("groups", stage): moved.groups}
        return {hop.table: one for hop, one in tables.items() if one.num_rows}

    def _output_rows(self, merged: MergedGroups) -> Iterator[OutputRow]:
        """A row that has another key now is deleted under the one before."""
        ranked = isinstance(self.view.stages[-1], Ranking)
        there = {key_of(self.view, now) for _, _, now in merged.rows if ranked and now is not None}
        for _, before, now in merged.rows:
            gone = None if before is None else key_of(self.view, before)
            same = now is not None and gone is not None and key_of(self.view, now) == gone
            if gone is not None and not same and gone not in there:
                yield OutputRow(gone, DELETED)
            if now is not None:
                yield OutputRow(now, UPSERTED)

    def _refuse(self, stage: int, group: bytes, reason: str) -> OutputRow:
        name = named_group(self.view, group, stage)
        return OutputRow(b"", REFUSED, reason, group=f"{self.environment.now.isoformat()} {name}")


def sent_rows(kept: bytes) -> list[bytes]:
    """The rows of a group that were passed on: at most one, or of a ranking several."""
    sent = unpack(kept)[1]
    return [one for one in (sent if isinstance(sent, list) else [sent]) if one is not None]


def _touches(keys: pa.ChunkedArray) -> pa.Table:
    """Changes that change nothing, one for each key."""
    unique = keys.unique()
    return changes(unique, [b""] * len(unique), np.zeros(len(unique), np.int64))
