"""Java's patterns of dates: `yyyy-MM-dd HH:mm:ss[.SSS]`, to write and to read."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache

_PARTS = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([\[\]])|([^A-Za-z'\[\]{}#]+)", re.DOTALL)
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_READS = {
    "y": "year",
    "u": "year",
    "M": "month",
    "L": "month",
    "d": "day",
    "H": "hour",
    "h": "hour12",
    "m": "minute",
    "s": "second",
    "S": "fraction",
    "a": "half",
    "E": "weekday",
}
_LETTERS = "yuMLdHhmsSaE"
_LONGEST = 9  # of one part, but for the parts of a second


@lru_cache(maxsize=256)
def parse_pattern(pattern: str) -> tuple[tuple[str, str], ...]:
    """Letter and text of each part; no letter: a text. Raises ValueError."""
    parts = tuple(_split(pattern))
    depth = 0
    for letter, _ in parts:
        depth += (letter == "[") - (letter == "]")
        if depth < 0:
            break
    if depth:
        raise ValueError("the pattern has a [ or ] without the other one")
    return parts


def _split(pattern: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(pattern):
        match = _PARTS.match(pattern, at)
        if match is None:
            raise ValueError("the pattern has a quote without an end, or one of { } #")
        letter = match[2] or match[3] or ""
        if letter and letter not in f"{_LETTERS}[]":
            raise ValueError(f"the pattern has the letter {letter}; allowed: {', '.join(_LETTERS)}")
        if letter and len(match.group()) > _LONGEST:
            raise ValueError(f"the pattern has more than {_LONGEST} times the letter {letter}")
        quoted = match[1].replace("''", "'") or "'" if match[1] is not None else match.group()
        yield letter, quoted
        at = match.end()


def check(pattern: str) -> None:
    """Raises ValueError where a pattern cannot be used."""
    parse_pattern(pattern)


def format_time(value: datetime, pattern: str) -> str:
    return "".join(_part(value, letter, text) for letter, text in parse_pattern(pattern))


def _part(value: datetime, letter: str, text: str) -> str:
    size = len(text)
    if letter in ("[", "]"):
        return ""
    if not letter:
        return text
    if letter in "yu":
        return f"{value.year % 100:02}" if size == 2 else f"{value.year:0{size}}"
    if letter in "ML" and size > 2:
        return _name_of(MONTHS, value.month - 1, size)
    if letter == "E":
        return _name_of(DAYS, value.weekday(), size)
    if letter == "S":
        return f"{value.microsecond:06}".ljust(9, "0")[:size]
    if letter == "a":
        return "AM" if value.hour < 12 else "PM"
    if letter == "h":
        return f"{(value.hour + 11) % 12 + 1:0{size}}"
    return f"{getattr(value, _READS[letter]):0{size}}"


def _name_of(names: Sequence[str], at: int, size: int) -> str:
    name = names[at]
    return name if size > 3 else name[:3]


def read(text: str, pattern: str) -> datetime | None:
    """A time of a text by a pattern; null where the text is not one. Raises ValueError."""
    match = _reader(pattern).fullmatch(text)
    if match is None:
        return None
    fields = {
        name.rpartition("_")[0]: one for name, one in match.groupdict().items() if one is not None
    }
    try:
        return _make(fields)
    except (ValueError, OverflowError):
        return None


def _make(given: dict[str, str]) -> datetime:
    """Raises ValueError where there is no such time."""
    year, month = _year(given), _month(given.get("month", "1"))
    last = calendar.monthrange(year, month)[1]
    day = int(given.get("day", 1))
    moment = datetime(  # noqa: DTZ001 - a time without a zone
        year,
        month,
        min(day, last) if day <= 31 else day,  # Java takes the 30th of February for its last day
        _hour(given),
        int(given.get("minute", 0)),
        int(given.get("second", 0)),
        int(given.get("fraction", "").ljust(6, "0")[:6]),
    )
    weekday = given.get("weekday")
    if weekday and not DAYS[moment.weekday()].startswith(weekday):
        raise ValueError("another day of the week")
    return moment


def _year(given: dict[str, str]) -> int:
    text = given.get("year", "1970")
    return 2000 + int(text) if len(text) == 2 else int(text)


def _month(text: str) -> int:
    if text.isdecimal():
        return int(text)
    return next(at for at, name in enumerate(MONTHS, 1) if name.startswith(text))


def _hour(given: dict[str, str]) -> int:
    """Without AM or PM an hour of twelve says nothing, and an hour of the day must fit to them."""
    hour12, half = int(given.get("hour12", 0)), given.get("half")
    if hour12 > 12:
        raise ValueError("not an hour of twelve")
    if "hour12" in given and half is not None:
        return hour12 % 12 + (12 if half == "PM" else 0)
    hour = int(given.get("hour", 0))
    if "hour" in given and half is not None and (half == "PM") is not (hour >= 12):
        raise ValueError("an hour of the other half of the day")
    return hour


@lru_cache(maxsize=256)
def _reader(pattern: str) -> re.Pattern[str]:
    parts = enumerate(parse_pattern(pattern))
    return re.compile("".join(_shape(at, letter, text) for at, (letter, text) in parts))


def _shape(at: int, letter: str, text: str) -> str:
    if not letter:
        return re.escape(text)
    if letter in ("[", "]"):
        return "(?:" if letter == "[" else ")?"
    return f"(?P<{_READS[letter]}_{at}>{_signs(letter, len(text))})"


def _signs(letter: str, size: int) -> str:
    if letter == "a":
        return "AM|PM"
    if (letter in "ML" and size > 2) or letter == "E":
        names = MONTHS if letter in "ML" else DAYS
        return "|".join(name if size > 3 else name[:3] for name in names)
    if letter in "yu" and size != 2:
        return "[0-9]{4}"
    if letter == "S":
        return f"[0-9]{{{size}}}"
    return "[0-9]{1,2}" if size == 1 else f"[0-9]{{{size}}}"
