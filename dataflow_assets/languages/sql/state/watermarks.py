"""Follows the time of a table's rows: for each partition, and for the view.

Pure functions of what committed micro-batches have read, and of the times at which they were
planned. All times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

LAST = 253_402_300_799_999
"""The watermark of a partition of which nothing more is ever read: the end of the year 9999."""


class WatermarkState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The time that one partition has reached."""

    active: int
    """When a micro-batch last had records of it; before the first one when it was first seen."""
    moment: int | None = None
    """The latest watermark of its rows."""


class Watermarks(msgspec.Struct, frozen=True, omit_defaults=True):
    """The times of all partitions."""

    marks: dict[str, WatermarkState] = {}
    reached: int | None = None
    """The watermark of the view, which never falls; None: there is none yet."""

    def waiting_for(self) -> list[str]:
        """The partitions that had no row with a time yet, while others had."""
        late = [name for name, one in self.marks.items() if one.moment is None]
        return sorted(late) if len(late) < len(self.marks) else []


def advance(
    before: Watermarks,
    arrived: Mapping[str, int | None],
    active: Iterable[str],
    now: int,
    idle: int,
) -> Watermarks:
    """The watermarks behind a micro-batch.

    Args:
        before: those in front of it.
        arrived: by the partition, of all that there are, the latest watermark of the rows that were
            read; None where none has one.
        active: the partitions that have records, read in this micro-batch or not read yet.
        now: when it was planned.
        idle: milliseconds after which a partition without records is not waited for; 0: always is.
    """
    at = dict.fromkeys(active, now)
    all_marks = {
        name: _move(before.marks.get(name), at.get(name), now) for name in {*before.marks, *arrived}
    }
    marks = {name: _rise(one, arrived.get(name)) for name, one in sorted(all_marks.items())}
    moved = Watermarks(marks, before.reached)
    return Watermarks(marks, watermark_at(moved, now, idle))


def by_clock(before: Watermarks, moment: int | None) -> Watermarks:
    """Advances windows over processing time: no partition is waited for, and none goes back.

    Args:
        before: those in front of the micro-batch.
        moment: what the clock showed when it was planned.
    """
    moments = [one for one in (before.reached, moment) if one is not None]
    return Watermarks(reached=max(moments, default=None))


def _move(before: WatermarkState | None, at: int | None, now: int) -> WatermarkState:
    if before is None:
        return WatermarkState(now)
    return before if at is None else WatermarkState(at, before.moment)


def _rise(mark: WatermarkState, moment: int | None) -> WatermarkState:
    moments = [one for one in (mark.moment, moment) if one is not None]
    return WatermarkState(mark.active, max(moments, default=None))


def watermark_at(watermarks: Watermarks, now: int, idle: int) -> int | None:
    moments = [
        one for one in (watermarks.reached, _least(watermarks, now, idle)) if one is not None
    ]
    return max(moments, default=None)


def _least(watermarks: Watermarks, now: int, idle: int) -> int | None:
    """The least of the partitions that are waited for.

    Once all are idle, those count that had records last: what the others had is over before.
    Partitions that have come to their end for ever count once all have.
    """
    every = list(watermarks.marks.values())
    marks = [one for one in every if one.moment != LAST] or every
    awaited = [one for one in marks if not idle or now - one.active < idle]
    if not awaited:
        there = [one for one in marks if one.moment is not None]
        last = max((one.active for one in there), default=0)
        awaited = [one for one in there if one.active == last]
    moments = [one.moment for one in awaited if one.moment is not None]
    return min(moments, default=None) if len(moments) == len(awaited) else None


def due(watermarks: Watermarks, first: int | None, idle: int) -> int | None:
    """When a window ends although no record arrives, since partitions are not waited for any more.

    Args:
        watermarks: the watermarks of the state.
        first: when the first of its groups is final; None: there is none in a window.
        idle: as in `advance`.
    """
    if not idle or first is None:
        return None
    for at in sorted({one.active + idle for one in watermarks.marks.values()}):
        moment = watermark_at(watermarks, at, idle)
        if moment is not None and moment + 1 >= first:
            return at
    return None
