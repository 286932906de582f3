"""Dates, times and durations that Kafka Connect and Debezium write as numbers, as text.

A time that is a text already is left as it is: connectors can be told to write texts.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

Convert = Callable[[Any], Any]
"""A value of a type, never null, as the value that it stands for. ValueError where it is none."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - all are in UTC, and written so
_DAY_ZERO = date(1970, 1, 1).toordinal()
_DAY_SECONDS = 24 * 3600
_RANGE = "lies outside the years 1 to 9999"
_INFINITE = {
    9223372036825200000: "infinity",
    9223371331200000000: "infinity",
    -9223372036832400000: "-infinity",
}
"""Numbers by which Debezium's connector for PostgreSQL writes what lies at no time."""


def day(value: Any) -> str:
    """A date, from days since 1970. ValueError for what is none."""
    if isinstance(value, str):
        return value
    text = iso_day(whole_number(value, "a number of days"))
    if text is None:
        raise ValueError(_RANGE)
    return text


def iso_day(days: int) -> str | None:
    """The date of so many days since 1970; None beyond the years of four digits."""
    try:
        return date.fromordinal(_DAY_ZERO + days).isoformat()
    except (ValueError, OverflowError):
        return None


def iso_moment(number: int, per_second: int) -> str | None:
    """The moment of a number since 1970, in UTC; None beyond the years of four digits."""
    seconds, rest = divmod(number, per_second)
    try:
        text = (_EPOCH + timedelta(seconds=seconds)).isoformat()
    except OverflowError:
        return None
    return f"{text}{_fraction(rest, len(str(per_second)) - 1)}Z"


def moment(per_second: int) -> Convert:
    """Returns what makes a moment of a number since 1970, of which so many are a second."""

    def convert(value: Any) -> str:
        if isinstance(value, str):
            return value
        number = whole_number(value, "a number since 1970")
        text = _INFINITE.get(number) or iso_moment(number, per_second)
        if text is None:
            raise ValueError(_RANGE)
        return text

    return convert


def time_of_day(per_second: int) -> Convert:
    """Returns what makes a time of a number since midnight; 24:00:00 is the end of the day."""
    digits = len(str(per_second)) - 1

    def convert(value: Any) -> str:
        if isinstance(value, str):
            return value
        seconds, rest = divmod(whole_number(value, "a number since midnight"), per_second)
        if not 0 <= seconds < _DAY_SECONDS and (seconds, rest) != (_DAY_SECONDS, 0):
            raise ValueError("lies outside the day")
        minutes, second = divmod(seconds, 60)
        return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}{_fraction(rest, digits)}"

    return convert


def duration(per_second: int) -> Convert:
    """Returns what makes a duration of a number, in seconds as ISO 8601 writes them."""
    digits = len(str(per_second)) - 1

    def convert(value: Any) -> str:
        if isinstance(value, str):
            return value
        number = whole_number(value, "a number of seconds")
        seconds, rest = divmod(abs(number), per_second)
        return f"PT{'-' if number < 0 else ''}{seconds}{_fraction(rest, digits)}S"

    return convert


def _fraction(rest: int, digits: int) -> str:
    return f".{rest:0{digits}}".rstrip("0") if rest else ""


def whole_number(value: Any, wanted: str) -> int:
    """The number; ValueError, which says what is wanted, for any other value."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"is not {wanted}")
