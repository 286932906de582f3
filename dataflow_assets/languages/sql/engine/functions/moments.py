"""Dates and times moved by intervals, and cut to units."""

from __future__ import annotations

import calendar
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Any

from dataflow_assets.languages.sql.engine.numbers import wrap_around
from dataflow_assets.languages.sql.engine.types import FlinkType

UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
MILLIS = {
    "WEEK": 604_800_000,
    "DAY": 86_400_000,
    "HOUR": 3_600_000,
    "MINUTE": 60_000,
    "SECOND": 1000,
}
MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of clocks without a zone
_MILLI = timedelta(milliseconds=1)


def shift(given: FlinkType, interval: FlinkType) -> Callable[[Any, int], Any]:
    """Returns what moves a time; an instant by the calendar of UTC.

    Raises ValueError where Flink moves no such values.
    """
    if given.kind not in ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ") or not interval.interval:
        raise ValueError(f"{given} and {interval} cannot be added")
    if interval.kind == "MONTHS":
        if given.kind == "TIME":
            raise ValueError(f"{given} and {interval} cannot be added")
        return months_later
    if given.kind == "TIME":
        return _clock_later
    if given.kind == "DATE":
        return lambda value, by: value + timedelta(days=int(by / MILLIS["DAY"]))
    return lambda value, by: value + timedelta(milliseconds=by)


def months_later(value: Any, months: int) -> Any:
    """Returns the same day of another month, or its last day. Raises ValueError."""
    whole = value.year * 12 + value.month - 1 + months
    year, month = divmod(whole, 12)
    last = calendar.monthrange(year, month + 1)[1] if 0 < year < 10_000 else 0
    if not last:
        raise ValueError("a time beyond the year 9999, or before the year 1")
    return value.replace(year=year, month=month + 1, day=min(value.day, last))


def _clock_later(value: time, millis: int) -> time:
    return (datetime.combine(date(2000, 1, 1), value) + timedelta(milliseconds=millis)).time()


def floor(value: Any, unit: str) -> Any:
    """The beginning of the unit that a date or time without a zone is in."""
    if unit in ("WEEK", "QUARTER", "YEAR", "MONTH"):
        day = _first_day(value, unit)
        return datetime.combine(day, time()) if isinstance(value, datetime) else day
    if not isinstance(value, datetime):
        return value
    units = ("DAY", "HOUR", "MINUTE", "SECOND")
    kept = units.index(unit)
    clock = [part if at < kept else 0 for at, part in enumerate(value.timetuple()[3:6])]
    return datetime.combine(value.date(), time(clock[0], clock[1], clock[2]))


def _first_day(value: date, unit: str) -> date:
    day = date(value.year, value.month, value.day)
    if unit == "WEEK":  # Flink's begin on Sundays here
        return day - timedelta(days=(day.weekday() + 1) % 7)
    month = {"YEAR": 1, "QUARTER": (day.month - 1) // 3 * 3 + 1}.get(unit, day.month)
    return day.replace(month=month, day=1)


def ceiling(value: Any, unit: str) -> Any:
    """The beginning of the next unit, unless the value is one."""
    start = floor(value, unit)
    if start == value:
        return value
    if unit in MONTHS:
        return months_later(start, MONTHS[unit])
    return start + timedelta(milliseconds=MILLIS[unit])


def part(value: Any, unit: str) -> int:
    """EXTRACT. Raises ValueError where the value has no such part."""
    if unit in ("HOUR", "MINUTE", "SECOND"):
        return int(getattr(value, unit.lower(), 0))
    if unit == "MILLISECOND":
        return int(getattr(value, "microsecond", 0)) // 1000
    if not isinstance(value, date):
        raise ValueError(f"a time has no {unit}")  # noqa: TRY004 - of a record
    if unit in ("YEAR", "MONTH", "DAY"):
        return int(getattr(value, unit.lower()))
    number = {
        "QUARTER": (value.month - 1) // 3 + 1,
        "WEEK": value.isocalendar()[1],
        "DOY": value.timetuple().tm_yday,
        "DOW": value.isoweekday() % 7 + 1,
    }
    return number[unit]


def between(unit: str, first: datetime, second: datetime) -> int:
    """TIMESTAMPDIFF: whole units from the first to the second, as an INT that overflows."""
    if unit in MONTHS:
        return _cut(_months_between(first, second), MONTHS[unit])
    millis = (second.replace(tzinfo=None) - _EPOCH) // _MILLI
    millis -= (first.replace(tzinfo=None) - _EPOCH) // _MILLI
    if unit == "WEEK":  # Flink counts weeks by an INT of seconds
        return _cut(wrap_around("INT", _cut(millis, 1000)), MILLIS["WEEK"] // 1000)
    return wrap_around("INT", _cut(millis, MILLIS[unit]))


def _cut(number: int, size: int) -> int:
    return number // size if number >= 0 else -(-number // size)


def _months_between(first: datetime, second: datetime) -> int:
    """Whole months: the last day of a month is reached where it lacks the day of the first one.

    Flink compares the days first, and the times of day only where the days meet, also backwards.
    """
    early, late = sorted((first.date(), second.date()))
    months: int = (late.year - early.year) * 12 + late.month - early.month
    months -= months_later(early, months) > late
    months = months if second.date() >= first.date() else -months
    meets = months_later(first.date(), months) == second.date()
    back: bool = meets and _millis_of_day(second) < _millis_of_day(first)
    return months - back


def _millis_of_day(value: datetime) -> time:
    return value.time().replace(microsecond=value.microsecond // 1000 * 1000)
