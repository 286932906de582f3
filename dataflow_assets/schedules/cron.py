"""Cron expressions as a CronJob of Kubernetes reads them, and the times that they name."""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from typing_extensions import override

from dataflow_assets.spec import Written

_MINUTE = timedelta(minutes=1)
_LEAP_YEARS = 8  # at most between two of them
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 6, _WEEKDAYS),
)


@dataclass(frozen=True)
class CronTimes(Written):
    """Five fields: minute, hour, day of the month, month, day of the week.

    Where both days are restricted, one of the two is enough, as everywhere in cron.
    """

    text: str
    """Five fields, as Dagster takes them."""
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    any_day: bool
    any_weekday: bool

    @classmethod
    @override
    def parse(cls, text: str) -> CronTimes:
        """Reads an expression; raises ValueError that says what to write instead."""
        parts = text.lower().split()
        if len(parts) == len(_FIELDS) + 1:
            parts = _without_seconds(parts)
        if len(parts) != len(_FIELDS):
            raise ValueError(
                f"must have five fields (minute, hour, day of the month, month, day of the week), "
                f"such as `0 3 * * *` for each day at 3:00; it has {len(parts)}"
            )
        minutes, hours, days, months, weekdays = map(_values, _FIELDS, parts)
        any_day, any_weekday = parts[2] in "*?", parts[4] in "*?"
        longest = max(calendar.monthrange(2024, month)[1] for month in months)
        if any_weekday and min(days) > longest:
            raise ValueError(f"never comes: these months have at most {longest} days")
        line = " ".join(parts).replace("?", "*")
        return cls(line, minutes, hours, days, months, weekdays, any_day, any_weekday)

    def after(self, moment: datetime, zone: ZoneInfo) -> datetime:
        """Returns the first time after the moment, in UTC.

        As Dagster does: a time that the clock skips is the first one after the gap; of one that it
        shows twice, the later counts, unless the expression is for every hour.
        """
        day, last = moment.astimezone(zone).date(), timedelta(days=366 * _LEAP_YEARS + 1)
        for number in range(last.days):
            here = day + timedelta(days=number)
            times = [one for one in self._times(here, zone) if one > moment]
            if times:
                return min(times)
        raise AssertionError(f"{self.text} never comes")  # `parse` refuses such

    def _times(self, day: date, zone: ZoneInfo) -> Iterator[datetime]:
        if not self._is_on(day):
            return
        if len(self.hours) == 24:
            yield from self._of_every_hour(day, zone)
            return
        for hour in self.hours:
            for minute in self.minutes:
                wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                yield _instant(wall, zone)

    def _is_on(self, day: date) -> bool:
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        either = not self.any_day and not self.any_weekday
        right = of_month or of_week if either else of_month and of_week
        return day.month in self.months and right

    def _of_every_hour(self, day: date, zone: ZoneInfo) -> Iterator[datetime]:
        """Counts the minutes that pass: a day has 23 to 25 hours."""
        now = datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)
        while (wall := now.astimezone(zone)).date() <= day:
            if wall.date() == day and wall.minute in self.minutes:
                yield now
            now += _MINUTE


def _instant(wall: datetime, zone: ZoneInfo) -> datetime:
    instant = wall.replace(fold=1).astimezone(UTC)
    while instant.astimezone(zone).replace(tzinfo=None) < wall.replace(tzinfo=None):
        instant += _MINUTE  # the clock skips it
    return instant


def _without_seconds(parts: list[str]) -> list[str]:
    if parts[0] != "0":
        raise ValueError(
            f"has six fields, of which the first one is seconds: a schedule ticks at most once a "
            f"minute. Write `{' '.join(parts[1:])}`, which ticks at second 0"
        )
    return parts[1:]


def _values(field: _Field, text: str) -> frozenset[int]:
    return frozenset(value for part in text.split(",") for value in _range(field, part))


def _range(field: _Field, part: str) -> range:
    bounds, slash, step = part.partition("/")
    begin, dash, end = bounds.partition("-")
    every = bounds in {"*", "?"}
    first = field.low if every else _number(field, begin)
    last = field.high if every or (slash and not dash) else _number(field, end or begin)
    width = int(step) if step.isdecimal() else 0 if slash else 1
    if not (field.low <= first <= last <= field.high and width and (end or not dash)):
        raise ValueError(_explain(field))
    return range(first, last + 1, width)


def _number(field: _Field, text: str) -> int:
    if text in field.names:
        return field.low + field.names.index(text)
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(_explain(field))
    return int(text)


def _explain(field: _Field) -> str:
    names = f", or {field.names[0]} to {field.names[-1]}" if field.names else ""
    return (
        f"has a {field.name} that cannot be read: {field.low} to {field.high}{names}; `*` for "
        f"each, 1-3 for a range that begins with the lower one, 1,3 for several, */2 for each "
        f"second one"
    )
