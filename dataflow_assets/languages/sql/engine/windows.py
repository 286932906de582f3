"""Windows of time: which of them a row is in, and when the groups of a window are final.

A window begins and ends at times of a clock: that of TIMESTAMP, or of TIMESTAMP_LTZ in
`table.local-time-zone`. Watermarks and ends are compared as milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from dataflow_assets.languages.sql.engine.casts import to_local
from dataflow_assets.languages.sql.engine.expressions import Expression, columns

Kind = Literal["TUMBLE", "HOP", "CUMULATE"]
FRONT = 8
"""Bytes in front of the key of a group that is in a window: when the group is final."""
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a clock has no zone
_MILLI = timedelta(milliseconds=1)


@dataclass(frozen=True)
class FlinkWindows:
    """TUMBLE, HOP or CUMULATE over the rows of a table; lengths are milliseconds."""

    kind: Kind
    time: Expression
    """The column of DESCRIPTOR."""
    size: int
    step: int
    """From one window to the next; of CUMULATE from one end to the next."""
    watermark: Expression
    """Of the table's WATERMARK."""
    offset: int = 0

    @property
    def local(self) -> bool:
        """Returns whether the windows are those of a clock in the session's zone."""
        return self.time.type.kind == "TIMESTAMP_LTZ"

    @property
    def of_clock(self) -> bool:
        """Returns whether they are over processing time: a row has the time at which it is read."""
        return not columns(self.time)

    @property
    def most(self) -> int:
        """Returns how many windows a row is in, at most."""
        return self.size // self.step

    @property
    def whole_seconds(self) -> bool:
        return all(length % 1000 == 0 for length in (self.size, self.step, self.offset))

    def of(self, at: int) -> Iterator[tuple[int, int]]:
        """Begin and end of each window that a time is in; the end is not part of the window."""
        if self.kind == "CUMULATE":
            begin = at - (at - self.offset) % self.size
            first = at - (at - begin) % self.step + self.step
            yield from ((begin, end) for end in range(first, begin + self.size + 1, self.step))
            return
        last = at - (at - self.offset) % self.step
        yield from ((begin, begin + self.size) for begin in range(last, at - self.size, -self.step))


@dataclass(frozen=True)
class Closing:
    """When the groups of a stage are final."""

    at: int
    """Which of its keys is the end of the window."""
    local: bool
    """As of Windows."""

    def front(self, end: datetime, zone: ZoneInfo) -> bytes:
        """The bytes in front of the key of a group whose window has this end."""
        return front(_instant(end, zone) if self.local else millis(end))


def front(at: int) -> bytes:
    """Milliseconds as bytes of the same order."""
    return (at + (1 << 63)).to_bytes(FRONT, "big")


def at_front(key: bytes) -> int:
    """The milliseconds in front of a key."""
    return int.from_bytes(key[:FRONT], "big") - (1 << 63)


def millis(value: datetime) -> int:
    """A time without a zone, or in UTC, in whole milliseconds since 1970."""
    return (value.replace(tzinfo=None) - _EPOCH) // _MILLI


def clock(value: datetime, zone: ZoneInfo, *, local: bool) -> int:
    """Returns what the clock of windows shows at a time, in milliseconds."""
    return millis(to_local(value, zone) if local else value)


def bounds(begin: int, end: int, zone: ZoneInfo, *, local: bool) -> list[Any]:
    """`window_start`, `window_end` and `window_time`. Raises OverflowError beyond the calendar."""
    last = _EPOCH + (end - 1) * _MILLI
    time = _utc(last, zone) if local else last
    return [_EPOCH + begin * _MILLI, _EPOCH + end * _MILLI, time]


def _instant(end: datetime, zone: ZoneInfo) -> int:
    return millis(_utc(end - _MILLI, zone)) + 1


def _utc(local: datetime, zone: ZoneInfo) -> datetime:
    moments = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return max(moments)
