"""Times of texts as Java's SimpleDateFormat reads them: what UNIX_TIMESTAMP goes by.

It begins at the front and leaves out what is behind the last part. Numbers may be longer or shorter
than in the pattern, and too large: the 30th of February is the first of March.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from dataflow_assets.languages.sql.engine.functions.patterns import DAYS, MONTHS, parse_pattern

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of clocks without a zone
_NUMBERS = ("y", "u", "d", "H", "h", "m", "s", "S")
Part = tuple[str, str]
"""A letter of a pattern, and how often it is written; without a letter a text."""
_NUMBER = re.compile(r"[ \t]*(-?[0-9]+)")
_GREGORIAN = date(1582, 10, 15).toordinal()
"""The first day of today's calendar; years before count leap days as Julius Caesar did."""
_LEAST, _MOST = -2_208_988_800, 253_402_000_000
"""Outside of these seconds the nearest offset of a zone counts: Java has none before 1900."""


def seconds(text: str, pattern: str, zone: ZoneInfo, now: datetime) -> int | None:
    """Seconds since 1970; None where the text is not such a time.

    `now`: years of two digits lie between 80 years before and 20 behind it. Raises ValueError for a
    pattern that cannot be used.
    """
    fields = _read(text, parse_pattern(pattern), now)
    return None if fields is None else _instant(_millis(fields), zone)


def _read(text: str, parts: Sequence[Part], now: datetime) -> dict[str, int] | None:
    fields: dict[str, int] = {}
    at = 0
    for part, following in zip(parts, [*parts[1:], ("", "")], strict=True):
        letter, written = part
        if letter in ("", "[", "]"):
            if not text.startswith(written, at):
                return None
            at += len(written)
            continue
        # In front of another number a number is as long as in the pattern.
        most = at + len(written) if _numeric(following) else len(text)
        taken = _digits(text, at, most) if _numeric(part) else _name(text, at, letter)
        if taken is None:
            return None
        given, at = taken
        if letter in "Hh":
            fields.pop("h" if letter == "H" else "H", None)
        fields["M" if letter == "L" else letter] = _value(part, given, now)
    return fields


def _numeric(part: Part) -> bool:
    letter, written = part
    return letter in _NUMBERS or (letter in ("M", "L") and len(written) <= 2)


def _digits(text: str, at: int, most: int) -> tuple[str, int] | None:
    """A number, with blanks in front, and where it ends."""
    match = _NUMBER.match(text, at, most) if most <= len(text) else None
    return None if match is None else (match[1], match.end())


def _name(text: str, at: int, letter: str) -> tuple[str, int] | None:
    """The number of a name, long or short and in any case, and where the name ends."""
    names = {"a": ("AM", "PM"), "E": DAYS}.get(letter, MONTHS)
    for size in (None, 3):
        for number, name in enumerate(names):
            end = at + len(name[:size])
            if text[at:end].lower() == name[:size].lower():
                return str(number + (letter in "ML")), end
    return None


def _value(part: Part, digits: str, now: datetime) -> int:
    short = part[0] == "y" and len(part[1]) <= 2 and len(digits) == 2 and digits.isdecimal()
    return _full_year(int(digits), now.year - 80) if short else int(digits)


def _full_year(value: int, first: int) -> int:
    return first + (value - first) % 100


def _millis(given: Mapping[str, int]) -> int:
    """Since 1970, by a clock without a zone."""
    hour = given.get("H", 0)
    if "h" in given:
        hour = (0 if given["h"] == 12 else given["h"]) + 12 * given.get("a", 0)
    minutes = hour * 60 + given.get("m", 0)
    millis = (minutes * 60 + given.get("s", 0)) * 1000 + given.get("S", 0)
    return _day(given.get("y", 1970), given.get("M", 1), given.get("d", 1)) * 86_400_000 + millis


def _day(year: int, month: int, day: int) -> int:
    """Days since 1970, of months and days that may be too large."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    shifted, years = (month + 9) % 12, year - (month < 3)
    before = (153 * shifted + 2) // 5 + day - 1 + 365 * years + years // 4
    gregorian = before - years // 100 + years // 400 - 305  # the first of March of the year 0
    ordinal = gregorian if gregorian >= _GREGORIAN else before - 307
    return ordinal - _EPOCH.toordinal()


def _instant(millis: int, zone: ZoneInfo) -> int:
    whole = millis // 1000
    local = (_EPOCH + timedelta(seconds=min(max(whole, _LEAST), _MOST))).replace(tzinfo=zone)
    offsets = (local.replace(fold=fold).utcoffset() or timedelta() for fold in (0, 1))
    return whole - int(min(offsets).total_seconds())
