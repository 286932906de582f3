"""Java's patterns of dates: `yyyy-MM-dd HH:mm:ss.SSS`, to write and to read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache

_PARTS = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z']+)", re.DOTALL)
_MONTHS = "January February March April May June July August September October November December"
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
_READS = {
    "y": "year",
    "M": "month",
    "d": "day",
    "H": "hour",
    "h": "hour12",
    "m": "minute",
    "s": "second",
    "S": "fraction",
    "a": "half",
}
_LETTERS = "yMdHhmsSaE"


@lru_cache(maxsize=256)
def _parsed(pattern: str) -> tuple[tuple[str, str], ...]:
    """Letter and text of each part; no letter: a text. Raises ValueError."""
    return tuple(_split(pattern))


def _split(pattern: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(pattern):
        found = _PARTS.match(pattern, at)
        if found is None:
            raise ValueError("the pattern has a quote without an end")
        letter = found[2]
        if letter and letter not in _LETTERS:
            raise ValueError(f"the pattern has the letter {letter}; allowed: {', '.join(_LETTERS)}")
        quoted = found[1].replace("''", "'") or "'" if found[1] is not None else found.group()
        yield letter or "", quoted
        at = found.end()


def check(pattern: str) -> None:
    """Raises ValueError where a pattern cannot be used."""
    _parsed(pattern)


def written(value: datetime, pattern: str) -> str:
    """A time by a pattern. Raises ValueError."""
    return "".join(_part(value, letter, text) for letter, text in _parsed(pattern))


def _part(value: datetime, letter: str, text: str) -> str:
    size = len(text)
    if not letter:
        return text
    if letter == "y":
        return f"{value.year % 100:02}" if size == 2 else f"{value.year:0{size}}"
    if letter == "M" and size > 2:
        name = _MONTHS.split()[value.month - 1]
        return name if size > 3 else name[:3]
    if letter == "E":
        name = _DAYS.split()[value.weekday()]
        return name if size > 3 else name[:3]
    if letter == "S":
        return f"{value.microsecond:06}".ljust(9, "0")[:size]
    if letter == "a":
        return "AM" if value.hour < 12 else "PM"
    if letter == "h":
        return f"{(value.hour + 11) % 12 + 1:0{size}}"
    return f"{getattr(value, _READS[letter]):0{size}}"


def read(text: str, pattern: str) -> datetime | None:
    """A time of a text by a pattern; null where the text is not one. Raises ValueError."""
    found = _reader(pattern).fullmatch(text)
    if found is None:
        return None
    given = {name: one for name, one in found.groupdict().items() if one is not None}
    try:
        return _made(given)
    except ValueError:
        return None


def _made(given: dict[str, str]) -> datetime:
    hour = int(given.get("hour", 0))
    if "hour12" in given:
        hour = int(given["hour12"]) % 12 + (12 if given.get("half", "AM").upper() == "PM" else 0)
    return datetime(  # noqa: DTZ001 - a time without a zone
        int(given.get("year", 1970)),
        int(given.get("month", 1)),
        int(given.get("day", 1)),
        hour,
        int(given.get("minute", 0)),
        int(given.get("second", 0)),
        int(given.get("fraction", "").ljust(6, "0")[:6]),
    )


@lru_cache(maxsize=256)
def _reader(pattern: str) -> re.Pattern[str]:
    shape = ""
    for letter, text in _parsed(pattern):
        if not letter:
            shape += re.escape(text)
        elif letter not in _READS or (letter == "M" and len(text) > 2):
            raise ValueError(f"the pattern {text} can be written, but not read")
        elif letter == "a":
            shape += "(?P<half>[AaPp][Mm])"
        else:
            least = len(text)
            most = 9 if letter in "yS" and least > 2 else max(least, 2)
            shape += f"(?P<{_READS[letter]}>[0-9]{{{least},{most}}})"
    try:
        return re.compile(shape)
    except re.error:
        raise ValueError("the pattern names a part twice") from None
