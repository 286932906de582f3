"""The way of changes through a view: each hop merges what is kept in one table with its changes.

Pure functions: what they take and give are keys, bytes and numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

from dataflow_assets.sql.function import Environment
from dataflow_assets.sql.ranking import Ranking, best
from dataflow_assets.sql.stages import (
    Changes,
    Merged,
    WindowGroups,
    as_changes,
    count,
    merge_distinct,
    merge_rows,
    merge_window_rows,
    spread,
)
from dataflow_assets.sql.values import unpack
from dataflow_assets.sql.view import ViewPlan, groups, key_of, named_group
from dataflow_assets.sql.windows import millis
from dataflow_assets.views.output import DELETED, REFUSED, UPSERTED, Row

ROWS = "rows"


class Change(NamedTuple):
    """One change of a table.

    In `rows` of an upsert table `beside` is the row (None: deleted), and of several the one with
    the highest number counts, of these the last. Elsewhere numbers are added up.
    """

    key: bytes
    beside: bytes | None
    number: int


@dataclass(frozen=True)
class Hop:
    """One table of a view, and what is merged into it."""

    kind: Literal["rows", "distinct", "groups"]
    stage: int = 0

    @property
    def table(self) -> str:
        """The name of the table."""
        return ROWS if self.kind == ROWS else f"{self.kind}-{self.stage}"


def stage_of(table: str) -> int | None:
    """The stage whose groups a table has; None for a table of something else."""
    kind, _, number = table.partition("-")
    return int(number) if kind == "groups" else None


def hops(view: ViewPlan) -> Iterator[Hop]:
    """The tables of a view, each before those that take what comes of it."""
    if view.changelog:
        yield Hop("rows")
    for number, stage in enumerate(view.stages):
        if stage.apart:
            yield Hop("distinct", number)
        yield Hop("groups", number)


@dataclass
class Moved:
    """What came of a hop."""

    puts: dict[bytes, bytes | None]
    changes: dict[str, list[Change]] = field(default_factory=dict)
    """By the table that they are of."""
    output: list[Row] = field(default_factory=list)

    def and_then(self, more: Moved) -> Moved:
        """With what came of the same table afterwards."""
        names = {*self.changes, *more.changes}
        changes = {
            one: [*self.changes.get(one, ()), *more.changes.get(one, ())] for one in sorted(names)
        }
        return Moved(self.puts, changes, [*self.output, *more.output])


@dataclass(frozen=True)
class Flowing:
    """A view in one micro-batch."""

    view: ViewPlan
    environment: Environment

    @cached_property
    def hops(self) -> tuple[Hop, ...]:
        """Its tables in their order."""
        return tuple(hops(self.view))

    @property
    def now(self) -> int:
        """When the micro-batch was planned, in milliseconds."""
        return millis(self.environment.now)

    def since(self, hop: Hop) -> int | None:
        """What was touched then, or before, is forgotten; None: nothing is."""
        forgets = self.view.expires and not self.windowed(hop)
        return self.now - self.view.expires if forgets else None

    def arriving(self, arrived: Iterable[Change]) -> dict[str, list[Change]]:
        """What was read, as changes of the first tables.

        Args:
            arrived: of an upsert table changes of `rows`; else what the first stage sees of a row,
                as `beside`, and how often.
        """
        if self.view.changelog:
            latest = latest_of(arrived)
            return {ROWS: [Change(key, row, at) for key, (at, row) in latest.items()]}
        seen: Changes = {}
        for _, row, times in arrived:
            group, arguments = unpack(row or b"")
            count(seen, group, arguments, times)
        first = self.view.stages[0]
        return self._spread(0, best(first, seen) if isinstance(first, Ranking) else seen)

    def merge(
        self, hop: Hop, old: Mapping[bytes, bytes | None], changes: Sequence[Change]
    ) -> Moved:
        """What is kept from now on, and what comes of it.

        Args:
            hop: the table.
            old: what it has for the keys that have changed.
            changes: of this table, or of a bucket of it: all changes of a key together. One of the
                number 0 changes nothing: its key is touched.
        """
        moved = self._merged(hop, old, changes)
        if self.since(hop) is None:
            return moved
        kept = {one.key: known for one in changes if (known := old.get(one.key)) is not None}
        touched = replace(moved, puts={**kept, **moved.puts})
        return touched.and_then(Moved({}, self._touched(hop, kept, touched.puts)))

    def _touched(
        self, hop: Hop, before: Mapping[bytes, bytes], now: Mapping[bytes, bytes | None]
    ) -> dict[str, list[Change]]:
        """Rows that are passed on as before touch what they are counted in."""
        following = 0 if hop.kind == ROWS else hop.stage + 1
        if hop.kind == "distinct" or following == len(self.view.stages):
            return {}
        if self.view.stages[following].window is not None:
            return {}
        rows = (
            row
            for key, known in before.items()
            if (after := now[key]) is not None
            for row in {*_passed_rows(hop, known)} & {*_passed_rows(hop, after)}
        )
        found = self._spread(following, as_changes((b"", None, row) for row in rows))
        return {table: [one._replace(number=0) for one in some] for table, some in found.items()}

    def _merged(
        self, hop: Hop, old: Mapping[bytes, bytes | None], changes: Iterable[Change]
    ) -> Moved:
        if hop.kind == ROWS:
            latest = {key: row for key, (_, row) in latest_of(changes).items()}
            merge = merge_rows if self.view.windows is None else merge_window_rows
            found = merge(old, latest)
            return Moved(found.puts, self._spread(0, found.changes))
        stage, counted = self.view.stages[hop.stage], added_up(changes)
        if hop.kind == "distinct":
            found = merge_distinct(stage, old, counted)
            return Moved(found.puts, {Hop("groups", hop.stage).table: _listed(found.changes)})
        return self._passed(hop, groups(self.view, hop.stage, self.environment).merge(old, counted))

    def windowed(self, hop: Hop) -> bool:
        """Whether the keys of a table begin with the end of their window."""
        return hop.kind != ROWS and self.view.stages[hop.stage].window is not None

    def close(self, hop: Hop, ended: Mapping[bytes, bytes]) -> Moved:
        """What comes of keys whose window is final; nothing is kept of them any more.

        Args:
            hop: a table of windows.
            ended: what was kept under these keys.
        """
        stage = groups(self.view, hop.stage, self.environment)
        if hop.kind == "groups" and isinstance(stage, WindowGroups):
            return self._passed(hop, stage.final(ended))
        return Moved({})

    def _passed(self, hop: Hop, found: Merged) -> Moved:
        refused = [self._refused(hop.stage, *one) for one in found.refused]
        if hop.stage + 1 == len(self.view.stages):
            return Moved(found.puts, output=[*self._output(found), *refused])
        following = self._spread(hop.stage + 1, as_changes(found.rows))
        return Moved(found.puts, following, refused)

    def _spread(self, stage: int, changes: Changes) -> dict[str, list[Change]]:
        found = spread(self.view.stages[stage], changes)
        tables = {Hop("distinct", stage): found.distinct, Hop("groups", stage): found.groups}
        return {hop.table: _listed(one) for hop, one in tables.items() if one}

    def _output(self, found: Merged) -> Iterator[Row]:
        """A row that has another key now is deleted under the one before."""
        ranked = isinstance(self.view.stages[-1], Ranking)
        there = {key_of(self.view, now) for _, _, now in found.rows if ranked and now is not None}
        for _, before, now in found.rows:
            gone = None if before is None else key_of(self.view, before)
            same = now is not None and gone is not None and key_of(self.view, now) == gone
            if gone is not None and not same and gone not in there:
                yield Row(gone, DELETED)
            if now is not None:
                yield Row(now, UPSERTED)

    def _refused(self, stage: int, group: bytes, reason: str) -> Row:
        name = named_group(self.view, group, stage)
        return Row(b"", REFUSED, reason, group=f"{self.environment.now.isoformat()} {name}")


def _passed_rows(hop: Hop, kept: bytes) -> list[bytes]:
    """The rows that a table passes on of a key."""
    return [kept] if hop.kind == ROWS else sent_rows(kept)


def sent_rows(kept: bytes) -> list[bytes]:
    """The rows of a group that were passed on: at most one, or of a ranking several."""
    found = unpack(kept)[1]
    return [one for one in (found if isinstance(found, list) else [found]) if one is not None]


def latest_of(changes: Iterable[Change]) -> dict[bytes, tuple[int, bytes | None]]:
    """Of each key the change with the highest number, of these the last: number and row."""
    found: dict[bytes, tuple[int, bytes | None]] = {}
    for key, row, number in changes:
        if key not in found or number >= found[key][0]:
            found[key] = number, row
    return found


def added_up(changes: Iterable[Change]) -> Changes:
    """Changes of the same row together."""
    found: Changes = {}
    for key, beside, number in changes:
        count(found, key, beside or b"", number)
    return found


def _listed(changes: Changes) -> list[Change]:
    return [Change(key, beside, number) for (key, beside), number in changes.items() if number]
