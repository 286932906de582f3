"""Dates and times moved by intervals, and cut to units."""

from __future__ import annotations

import calendar
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Any

from dataflow_assets.sql.types import Type

UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
MILLIS = {
    "WEEK": 604_800_000,
    "DAY": 86_400_000,
    "HOUR": 3_600_000,
    "MINUTE": 60_000,
    "SECOND": 1000,
}
MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}


def shifted(given: Type, interval: Type) -> Callable[[Any, int], Any]:
    """What moves a time; an instant by the calendar of UTC.

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
    """The same day of another month, or its last one. Raises ValueError."""
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
        return _midnight(value, _first_day(value, unit))
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


def _midnight(value: Any, day: date) -> Any:
    return datetime.combine(day, time()) if isinstance(value, datetime) else day


def ceiling(value: Any, unit: str) -> Any:
    """The beginning of the next unit, unless the value is one."""
    found = floor(value, unit)
    if found == value:
        return value
    if unit in MONTHS:
        return months_later(found, MONTHS[unit])
    return found + timedelta(milliseconds=MILLIS[unit])


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
    found = {
        "QUARTER": (value.month - 1) // 3 + 1,
        "WEEK": value.isocalendar()[1],
        "DOY": value.timetuple().tm_yday,
        "DOW": value.isoweekday() % 7 + 1,
    }
    return found[unit]


def between(unit: str, first: datetime, second: datetime) -> int:
    """TIMESTAMPDIFF: whole units from the first to the second."""
    if unit in MILLIS:
        micros = (second - first) // timedelta(microseconds=1)
        size = MILLIS[unit] * 1000
        return micros // size if micros >= 0 else -(-micros // size)
    early, late = min(first, second), max(first, second)
    months = (late.year - early.year) * 12 + late.month - early.month
    if (late.day, late.time()) < (early.day, early.time()):
        months -= 1
    whole = months // MONTHS[unit]
    return whole if second >= first else -whole
