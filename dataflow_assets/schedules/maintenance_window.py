"""A maintenance window: the hours in which a flow pauses, once or again and again.

A window opens at the wall time of its zone that its first start shows there, and stays open for
its duration, measured as elapsed time, whatever clocks are set to meanwhile. A wall time that a day
does not have, or has twice, since clocks are changed, is what RFC 5545 takes it for: it counts from
the offset before the change, so that of two the first one opens the window.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

Repeat = Literal["daily", "weekly", "monthly"]

_EVERY = {"daily": "every day", "weekly": "every week", "monthly": "every month"}
_MOST = 400  # windows without a pause between them, after which one counts as never closing


@dataclass(frozen=True)
class MaintenanceWindow:
    """When a flow pauses by its manifest. Times given and returned are aware."""

    first: datetime
    """The first start; no window is open before it."""
    duration: timedelta
    repeat: Repeat | None = None
    zone: tzinfo = UTC
    description: str = ""

    def is_open(self, at: datetime) -> bool:
        start = self.last_start(at)
        return start is not None and at < start + self.duration

    def last_start(self, at: datetime) -> datetime | None:
        """Returns when the window opened last, by this time; None before the first start."""
        number = self._last(at)
        return None if number < 0 else self._start(number)

    def next_start(self, at: datetime) -> datetime | None:
        """Returns when it opens next, after this time; None where it does not."""
        number = self._last(at) + 1
        return None if number and self.repeat is None else self._start(number)

    def next_change(self, at: datetime) -> datetime | None:
        """Returns when it opens or closes next, after this time; None where it never does.

        Windows that follow each other without a pause, or overlap, are one.
        """
        if not self.is_open(at):
            return self.next_start(at)
        number = self._last(at)
        for each in range(number, number + _MOST):
            closes = self._start(each) + self.duration
            if self.repeat is None or self._start(each + 1) > closes:
                return closes
        return None

    def reason(self, at: datetime) -> str:
        """Returns why a flow pauses at this time, for people; empty where it does not."""
        if not self.is_open(at):
            return ""
        text = self.description
        name = f"in maintenance window `{text}`" if text else "in a maintenance window"
        closes = self.next_change(at)
        if closes is None:
            return f"{name}, which never closes: its windows follow each other without a pause"
        local, today = closes.astimezone(self.zone), at.astimezone(self.zone)
        day = "" if local.date() == today.date() else f"{local:%Y-%m-%d} "
        return f"{name} until {day}{local:%H:%M} {self.zone}"

    def __str__(self) -> str:
        local = self.first.astimezone(self.zone)
        when = f"once, at {local:%Y-%m-%d %H:%M}"
        if self.repeat:
            when = f"{_EVERY[self.repeat]} from {local:%Y-%m-%d} on, at {local:%H:%M}"
        name = f"`{self.description}`: " if self.description else ""
        return f"{name}{when} {self.zone}, for {self.duration}"

    def _last(self, at: datetime) -> int:
        """The number of the last start by this time, the first one is 0; -1 before it."""
        if at < self.first:
            return -1
        # The clock is of no later day than this, and may have been set back from the one after it.
        number = self._periods(at) + 1 if self.repeat else 0
        while self._start(number) > at:
            number -= 1
        return number

    def _periods(self, at: datetime) -> int:
        here, first = at.astimezone(self.zone).date(), self.first.astimezone(self.zone).date()
        if self.repeat == "monthly":
            return (here.year - first.year) * 12 + here.month - first.month
        return (here - first).days // (7 if self.repeat == "weekly" else 1)

    def _start(self, number: int) -> datetime:
        if number == 0:
            return self.first.astimezone(UTC)
        first = self.first.astimezone(self.zone)
        if self.repeat == "monthly":
            years, month = divmod(first.month - 1 + number, 12)
            year, month = first.year + years, month + 1
            last_day = monthrange(year, month)[1]
            local = first.replace(year=year, month=month, day=min(first.day, last_day), fold=0)
        else:
            days = number * (7 if self.repeat == "weekly" else 1)
            local = (first + timedelta(days=days)).replace(fold=0)  # the same wall time
        return local.astimezone(UTC)
