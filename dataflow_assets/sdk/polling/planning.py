"""From a position to the next one: which rows to read, in which parts.

A part is bounded in rows and in bytes: a sink may have to keep the whole of it.

A first load is read in ranges of the order column, up to a pair that was fixed before; what comes
after it in the order of changes. Borders are asked for a few at a time, before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dataflow_assets.contracts import PARTS, Limit
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.polling.overlap import late_from
from dataflow_assets.sdk.polling.seek import check_kinds, end
from dataflow_assets.sdk.sql_table import PolledSqlTable
from dataflow_assets.sdk.sql_table.positions import NOTHING, Pair, PolledPosition, Rows

LEAST = 20_000  # rows that are worth a part of their own
PILOT = 1_000  # rows that are measured first
MOST = 64  # parts that one part is cut into: each has a row or a record in the checkpoint


@dataclass(frozen=True)
class PlannedSpan:
    """What one span reads. A part None is a query as it is, with all its rows."""

    parts: tuple[Rows | None, ...]
    upto: PolledPosition
    full: bool = False
    """More is waiting already."""


@dataclass(frozen=True)
class Planner:
    """Plans over one table or query, in parts within the limit.

    Made on the driver for each plan, while the session asks the server (`PolledSession.asking`).
    Every method may raise TransientError where the server cannot be reached.
    """

    polled: PolledSqlTable[Any]
    overlap: int = 0
    """Seconds of which rows may come late."""
    limit: Limit = Limit()
    """Of one part, in rows and in bytes."""

    def step(self, position: PolledPosition, until: PolledPosition | None) -> PlannedSpan | None:
        """The next step, not beyond `until`; None where there is nothing to read.

        A first load ends at the bound that was fixed when it began, wherever `until` is by now.
        Called once for each micro-batch.

        Args:
            position: where the flow is.
            until: where to end; None for the end there is now.

        Raises:
            PermanentError: the position is of another way of reading.
        """
        if self.polled.wholly:
            at = until.read_at if until is not None and until.state == "query" else None
            return PlannedSpan((None,), PolledPosition("query", read_at=at or self.polled.now()))
        self._check(position)
        if position.state == "load":
            return self._load(position, until)
        return self._increments(position, until)

    def smaller(self, rows: Rows) -> tuple[Rows, ...]:
        """Parts within the limit that have these rows together; of very many rows larger ones.

        What is within it stays as it is: the ids of rejected rows are made of their places in it.
        Called for each part that is not committed, where a part was too large for a sink.

        Args:
            rows: one part, as planned.

        Returns:
            At most `MOST` parts; their borders are those of the given part.
        """
        count, size = self.polled.size(rows)
        if count <= self.limit.records and size <= self.limit.bytes:
            return (rows,)
        share = MOST // 2
        records = max(self.limit.records, -(-count // share))
        limit = Limit(records, max(self.limit.bytes, -(-size // share)))
        found, rest = replace(self, limit=limit).cut(rows, records, MOST)
        return found if rest is None else (*found, rest)

    def _load(self, position: PolledPosition, until: PolledPosition | None) -> PlannedSpan | None:
        begun = position if position.begun else self._begin(position, until)
        if begun is None:
            return None
        same = until is not None and until.bound == begun.bound
        stop = until.key if until is not None and same and until.begun else None
        rows = Rows(upto=begun.bound, load=True, low=begun.key, high=stop)
        enough = max(LEAST, -(-self.polled.estimate(rows) // PARTS))
        parts, rest = self.cut(rows, max(1, min(self.limit.records, enough)), PARTS)
        if rest is not None:
            return PlannedSpan(parts, replace(begun, key=parts[-1].high), full=True)
        if until is None or not same:
            return PlannedSpan(parts, begun.after_load())
        return PlannedSpan(parts, replace(until, unordered=begun.unordered))

    def _begin(
        self, position: PolledPosition, until: PolledPosition | None
    ) -> PolledPosition | None:
        """The first load with its bound fixed; None for an empty table."""
        if until is not None and until.at_start:
            return None
        last = until or end(self.polled)
        if last.at_start:
            return None
        change, order = last.bound
        known = last.unordered if last.begun else self.polled.unordered_rows()
        found = replace(position, begun=True, change=change, order=order, by=last.by)
        return replace(found, read_at=last.read_at, unordered=known)

    def _increments(
        self, position: PolledPosition, until: PolledPosition | None
    ) -> PlannedSpan | None:
        if until is not None and until.state == "load":
            return None
        last = until or end(self.polled)
        late = late_from(position, self.overlap)
        new = self.polled.is_before(position.bound, last.bound)
        if not new and not late:
            return None
        again: Pair = (late, None)
        back = late and self.polled.is_before(again, position.bound)
        rows = Rows(again if back else position.bound, last.bound if new else position.bound)
        parts, rest = self.cut(rows, self.limit.records, PARTS)
        full = rest is not None
        (change, order), sweep = parts[-1].upto, position if position.sweeping else last
        # What a sweep has not seen is what came after it began: the next one overlaps from there.
        upto = replace(position, change=change, order=order, read_at=sweep.read_at, sweeping=full)
        return PlannedSpan(parts, replace(upto, by=self.polled.order_kinds), full)

    def cut(self, rows: Rows, most: int, count: int) -> tuple[tuple[Rows, ...], Rows | None]:
        """The first parts, and what is left behind them.

        Called once for each micro-batch. Asks the server for the border of each part.

        Args:
            rows: all that is to be read.
            most: the most rows of a part.
            count: the most parts.

        Returns:
            The parts, and the rest; None where nothing is left.
        """
        found, left, enough = list[Rows](), rows, min(most, PILOT)
        for _ in range(count):
            part, rest, enough = self._part(left, most, enough)
            found.append(part)
            if rest is None:
                return tuple(found), None
            left = rest
        return tuple(found), left

    def _part(self, rows: Rows, most: int, enough: int) -> tuple[Rows, Rows | None, int]:
        """A part within the limit, what is left, and how many such rows are enough for a part.

        Measured, not guessed: rows are tried that may fit, and fewer until they do.
        """
        part, rest = self._split(rows, enough)
        count, size = self.polled.size(part)
        if rest is not None and enough < most and size * 2 < self.limit.bytes:
            enough = self._enough(count, size, most)
            part, rest = self._split(rows, enough)
            count, size = self.polled.size(part)
        while size > self.limit.bytes and enough > 1:
            enough = self._enough(count, size, enough * 3 // 4)
            part, rest = self._split(rows, enough)
            count, size = self.polled.size(part)
        return part, rest, self._enough(count, size, most)

    def _enough(self, count: int, size: int, most: int) -> int:
        """Returns how many rows of this width are a bit less than the limit.

        Where there were none, as in a range whose rows have all changed, nothing is known of it.
        """
        if not count:
            return most
        return max(1, min(most, count * self.limit.bytes * 9 // (max(size, 1) * 10)))

    def _split(self, rows: Rows, most: int) -> tuple[Rows, Rows | None]:
        """The first rows, and those behind them, if there are any."""
        if rows.load:
            high = self.polled.key(rows, most)
            if high is None or high == rows.high:
                return rows, None
            return replace(rows, high=high), replace(rows, low=high)
        border = self.polled.border(rows, most)
        if border is None or border == rows.upto:
            return rows, None
        return replace(rows, upto=border), replace(rows, after=border)

    def _check(self, position: PolledPosition) -> None:
        wrong, known = "", position.state == "rows" and position.bound != NOTHING
        if position.state == "query":
            wrong = "of a query that was read as a whole"
        elif known and (position.change is not None) != self.polled.tracks:
            by = "a change column" if self.polled.tracks else "the order column alone"
            wrong = f"of another order than the one by {by}, which its rows have now"
        if wrong:
            raise PermanentError(
                f"the checkpoint of {self.polled.title} is {wrong}; start from earliest or from "
                "latest, or run dataflow reset"
            )
        check_kinds(self.polled, position.by)
