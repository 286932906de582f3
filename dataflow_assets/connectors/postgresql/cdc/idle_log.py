"""Log without changes of these tables: what was looked through, and when to move on over it.

The log grows by what everybody writes. Without a look each commit of somebody else would be news,
and a position that never moved would keep the whole server's log.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from dataflow_assets.connectors.postgresql.cdc.look import CdcSeen, look
from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.position import Lsn

LOOK_BYTES = 1024 * 1024 * 1024  # of the log without changes that one look goes through
SLOW_SECONDS = 1.0  # that a look may take without a rest behind it
REST = 10.0  # times as long as the look took
IDLE_BYTES = 1024 * 1024  # of the log without changes for which the position moves on
_NEAR = 8  # a change is near that comes in the first eighth of a stretch
_MOST_PROVEN = 7  # stretches that are planned without a look, behind one with a look


@dataclass(frozen=True)
class _Dense:
    """Log that is taken for changes of these tables without a look."""

    begin: Lsn | None = None
    left: int = 0
    """How many stretches may follow so."""
    proven: int = 0
    """How many were allowed by the last look."""


class IdleLog:
    """A session's memory of such log. Used by the driver, by one thread at a time."""

    def __init__(self, source: PostgresqlCdcOptions) -> None:
        self._source = source
        self._after: Lsn | None = None
        self._idle: tuple[Lsn, Lsn] | None = None
        self._found: tuple[Lsn, CdcSeen] | None = None
        """From where on somebody has looked last, and the change that was found."""
        self._dense = _Dense()
        self._server = ""
        self._moved = self._rested = float("-inf")

    def of(self, server: str) -> None:
        """The log is that of this server now: another one may have other changes at its places."""
        if server != self._server:
            self._server, self._idle, self._found, self._dense = server, None, None, _Dense()

    @property
    def rests(self) -> bool:
        """Returns whether the last look, which found nothing, took so long that the next one waits.

        The server begins at the oldest transaction that is open, however little log is asked for.
        """
        return time.monotonic() < self._rested

    def note_plan(self, after: Lsn) -> None:
        """A span was planned from there: who asks for news asks for what lies behind."""
        self._after = after

    def bounds(self, begin: Lsn, first: Lsn, size: int, most: int, end: Lsn) -> list[Lsn]:
        """The ends of the stretches that are planned next: one, and some without a look behind it.

        Each look makes the server decode as much as the read that follows. So where looks find a
        change at once, one stretch more is planned without one, then three more, then seven: where
        the log turns into that of others, at most as many stretches are empty as were full.

        Args:
            begin: of the first stretch.
            first: where the first change in there commits.
            size: bytes of the log behind that, in each of them.
            most: stretches.
            end: of the log.
        """
        borders = [Lsn(min(end.value, first.value + size))]
        if borders[0].value == end.value:
            return borders
        left, proven = self._allowance(begin, first, borders[0])
        while left and borders[-1].value < end.value and len(borders) < most:
            borders.append(Lsn(min(end.value, borders[-1].value + size)))
            left -= 1
        self._dense = _Dense(borders[-1], left if borders[-1].value < end.value else 0, proven)
        return borders

    def _allowance(self, begin: Lsn, first: Lsn, upto: Lsn) -> tuple[int, int]:
        if self._is_dense(begin):
            return self._dense.left - 1, self._dense.proven
        near = (first.value - begin.value) * _NEAR <= upto.value - first.value
        proven = min(_MOST_PROVEN, 2 * self._dense.proven + 1) if near else 0
        return proven, proven

    def note_move(self) -> None:
        """The position moves on over log without changes now."""
        self._moved = time.monotonic()

    def has_news(self, confirmed: Lsn, end: Lsn) -> bool:
        """Returns whether a read would find changes, or long stretches of the log without any.

        Args:
            confirmed: where the slot is.
            end: of the log.
        """
        after = confirmed
        if self._after is not None and self._after.value > after.value:
            after = self._after
        if self.is_long(after, end):
            return True  # the plan looks: whoever asks here asks for other flows too
        return not self.rests and self.first_change(after, end).first is not None

    def is_long(self, after: Lsn, end: Lsn) -> bool:
        """Returns whether so much log is a reason to move on, with changes or without."""
        interval = self._source.heartbeat_interval_seconds
        due = bool(interval) and not self.rests and time.monotonic() - self._moved >= interval
        size = end.value - after.value
        return size > LOOK_BYTES or (due and size >= IDLE_BYTES)

    def first_change(self, after: Lsn, end: Lsn) -> CdcSeen:
        """The first change between two places; what is known is not asked again.

        Who asks for news is followed by who plans, and a look at a transaction of gigabytes takes
        the server as long as reading it.
        """
        low, high = self._idle or (after, after)
        begin = high if low.value <= after.value <= high.value else after
        if begin.value >= end.value:
            return CdcSeen(0)
        if self._is_dense(begin):
            return CdcSeen(1, begin)
        if (known_seen := self._known_change(begin, end)) is not None:
            return known_seen
        return self._look(low if begin is high else after, begin, end, most=1)

    def count_changes(self, after: Lsn, end: Lsn, most: int) -> CdcSeen:
        """Changes between two places, up to so many; what was looked through is not counted again.

        While a look rests, what was logged since is taken for log without changes: the next look
        tells. Who reports the lag of a micro-batch is followed by who reports that of the run, and
        each look at the log costs the server as much as reading it.
        """
        low, high = self._idle or (after, after)
        is_known = low.value <= after.value <= high.value
        if is_known and (high.value >= end.value or self.rests):
            return CdcSeen(0)
        begin = high if is_known else after
        return self._look(low if is_known else after, begin, end, most)

    def _look(self, low: Lsn, begin: Lsn, end: Lsn, most: int) -> CdcSeen:
        """Looks, and keeps what was found; from `low` to `begin` there are no changes."""
        began = time.monotonic()
        seen = look(self._source, begin, end, most)
        took = time.monotonic() - began
        if seen.first is None:
            self._dense = _Dense()
            self._idle = low, end
            self._rested = time.monotonic() + (REST * took if took >= SLOW_SECONDS else 0.0)
        else:
            self._found = begin, seen
        return seen

    def _is_dense(self, begin: Lsn) -> bool:
        return self._dense.begin == begin and self._dense.left > 0

    def _known_change(self, after: Lsn, end: Lsn) -> CdcSeen | None:
        """The change that was found last, if it is the first one between these places too."""
        if self._found is None:
            return None
        low, seen = self._found
        assert seen.first is not None  # noqa: S101 - only such are kept
        is_between = low.value <= after.value <= seen.first.value < end.value
        return seen if is_between else None
