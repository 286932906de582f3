"""From a position to the next one: which rows to read, in which parts.

A first load is read in ranges of the order column, up to a pair that was fixed before; what comes
after it in the order of changes. Borders are asked for a few at a time, before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from dataflow_assets.errors import PermanentError
from dataflow_assets.polling.positions import NOTHING, START, Pair, Position, Rows

PARTS = 4  # of a span: commits, reports and stops come often
LEAST = 20_000  # rows that are worth a part of their own


class Polled(Protocol):
    """A table or query as its server describes it now; every comparison is the server's own."""

    @property
    def title(self) -> str:
        """What is read, for people."""

    @property
    def wholly(self) -> bool:
        """True where nothing orders the rows: they are read as they come, all of them."""

    @property
    def tracks(self) -> bool:
        """True where a change column orders the rows, before the order column."""

    def now(self) -> str:
        """The server's clock, as ISO 8601 text."""

    def newest(self) -> Pair:
        """The last pair there is now, none beyond the server's clock."""

    def has_rows(self) -> bool:
        """Whether there is any row at all."""

    def unordered(self) -> int:
        """How many rows have no place in the order."""

    def is_before(self, one: Pair, other: Pair) -> bool:
        """Whether a pair comes before another; a missing value comes before every other."""

    def estimate(self, rows: Rows) -> int:
        """How many rows there are, about."""

    def key(self, rows: Rows, most: int) -> str | None:
        """The last order value of the first `most` rows; None where there are no more."""

    def border(self, rows: Rows, most: int) -> Pair | None:
        """The last pair of the first `most` rows; None where there are no more."""


@dataclass(frozen=True)
class Step:
    """What one span reads. A part None is a query as it stands."""

    parts: tuple[Rows | None, ...]
    upto: Position
    full: bool = False
    """More is waiting already."""


def end(polled: Polled) -> Position:
    """The position of one who has read everything there is."""
    if polled.wholly:
        return Position("query", read_at=polled.now())
    read_at = polled.now()
    change, order = polled.newest()
    if (change, order) == NOTHING and not polled.has_rows():
        return START
    return Position("rows", change, order, read_at=read_at)


def is_behind(polled: Polled, one: Position, other: Position, interval: float) -> bool:
    """True while `one` has not got everything that `other` has.

    A first load is behind whatever is not one; a query without order is due again after `interval`
    seconds.
    """
    if one == other or other.at_start:
        return False
    if polled.wholly:
        return seconds(one.read_at, other.read_at) >= max(interval, 1e-6)
    if one.at_start or other.state != "load":
        return one.state == "load" or polled.is_before(one.bound, other.bound)
    if one.state != "load":
        return False
    if one.bound != other.bound:
        return polled.is_before(one.bound, other.bound)
    return one.key != other.key and (
        one.key is None or polled.is_before((one.change, one.key), (one.change, other.key))
    )


def seconds(since: str | None, until: str | None) -> float:
    """Between two times of one clock; for ever where the first is unknown."""
    if since is None or until is None:
        return float("inf")
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()


@dataclass(frozen=True)
class Planner:
    """Plans over one table or query."""

    polled: Polled

    def step(self, position: Position, until: Position | None, most: int) -> Step | None:
        """The next step, not beyond `until`; None where there is nothing to read.

        A first load ends at the bound that was fixed when it began, wherever `until` is by now.
        """
        if self.polled.wholly:
            at = until.read_at if until is not None and until.state == "query" else None
            return Step((None,), Position("query", read_at=at or self.polled.now()))
        self._check(position)
        if position.state == "load":
            return self._load(position, until, most)
        return self._increments(position, until, most)

    def _load(self, position: Position, until: Position | None, most: int) -> Step | None:
        begun = position if position.begun else self._begun(position, until)
        if begun is None:
            return None
        same = until is not None and until.bound == begun.bound
        stop = until.key if until is not None and same and until.begun else None
        rows = Rows(upto=begun.bound, load=True, low=begun.key, high=stop)
        parts, full = self._ranges(rows, most)
        if full:
            return Step(parts, replace(begun, key=parts[-1].high), full=True)
        if until is None or not same:
            return Step(parts, begun.loaded())
        return Step(parts, replace(until, unordered=begun.unordered))

    def _begun(self, position: Position, until: Position | None) -> Position | None:
        """The first load with its bound fixed; None for an empty table."""
        if until is not None and until.at_start:
            return None
        last = until or end(self.polled)
        if last.at_start:
            return None
        change, order = last.bound
        known = last.unordered if last.begun else self.polled.unordered()
        found = replace(position, begun=True, change=change, order=order)
        return replace(found, read_at=last.read_at, unordered=known)

    def _increments(self, position: Position, until: Position | None, most: int) -> Step | None:
        if until is not None and until.state == "load":
            return None
        last = until or end(self.polled)
        if not self.polled.is_before(position.bound, last.bound):
            return None
        target = replace(last, unordered=position.unordered)
        parts, full = self._pieces(Rows(position.bound, last.bound), most)
        if full:
            change, order = parts[-1].upto
            target = replace(target, change=change, order=order)
        return Step(parts, target, full)

    def _ranges(self, rows: Rows, most: int) -> tuple[tuple[Rows, ...], bool]:
        """The next ranges of the order column, and whether more is waiting behind them."""
        most = max(1, min(most, max(LEAST, -(-self.polled.estimate(rows) // PARTS))))
        parts: list[Rows] = []
        for _ in range(PARTS):
            high = self.polled.key(rows, most)
            if high is None or high == rows.high:
                return (*parts, rows), False
            parts.append(replace(rows, high=high))
            rows = replace(rows, low=high)
        return tuple(parts), True

    def _pieces(self, rows: Rows, most: int) -> tuple[tuple[Rows, ...], bool]:
        """The next pieces of the order of changes, and whether more is waiting behind them."""
        parts: list[Rows] = []
        for _ in range(PARTS):
            border = self.polled.border(rows, most)
            if border is None or border == rows.upto:
                return (*parts, rows), False
            parts.append(replace(rows, upto=border))
            rows = replace(rows, after=border)
        return tuple(parts), True

    def _check(self, position: Position) -> None:
        wrong = ""
        if position.state == "query":
            wrong = "of a query that was read as a whole"
        elif self._ordered_otherwise(position):
            by = "a change column" if self.polled.tracks else "the order column alone"
            wrong = f"of another order than the one by {by}, which its rows have now"
        if wrong:
            raise PermanentError(
                f"the checkpoint of {self.polled.title} is {wrong}; start from earliest or from "
                "latest, or run dataflow reset"
            )

    def _ordered_otherwise(self, position: Position) -> bool:
        known = position.state == "rows" and position.bound != NOTHING
        return known and (position.change is not None) != self.polled.tracks
