"""Go's layouts: a time is written as 2006-01-02 15:04:05, the reference time, stands in them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator

from dataflow_assets.records.times.instant import Instant, rfc3339, rfc3339_nano, unix, unix_milli


def layout(text: str) -> Callable[[Instant], str | int]:
    """Instant -> what a Go layout, or one of Go's names for one, makes of it."""
    if text in _FUNCTIONS:
        return _FUNCTIONS[text]
    if text not in _LAYOUTS and _A_NAME.match(text):
        raise ValueError(f"is not the name of a layout; there are {_NAMES}")
    text = _LAYOUTS.get(text, text)
    if not _TOKEN.search(text):
        raise ValueError(f"has no part of a date; wanted: 2006-01-02 15:04:05, or one of {_NAMES}")
    parts = [_part(part) for part in _TOKEN.split(text) if part]
    return lambda instant: "".join(part(instant) for part in parts)


def _part(part: str) -> Callable[[Instant], str]:
    if part in _TOKENS:
        write = _TOKENS[part]
        return lambda instant: write(instant.second)
    if not _TOKEN.fullmatch(part):
        return lambda _: part
    if part[0] in ".,":
        return _fraction(part)
    return lambda instant: _offset(instant.second, part)


def _fraction(part: str) -> Callable[[Instant], str]:
    """`.000` always writes three digits, `.999` as many of them as there are."""
    places = len(part) - 1

    def write(instant: Instant) -> str:
        digits = instant.fraction[:places]
        digits = digits.rstrip("0") if part[1] == "9" else digits.ljust(places, "0")
        return part[0] + digits if digits else ""

    return write


def _offset(second: datetime, part: str) -> str:
    digits = second.strftime("%z")  # +hhmm
    if part[0] == "Z" and digits == "+0000":
        return "Z"
    shape = part[1:].replace("07", digits[1:3], 1)
    return digits[0] + shape.replace("00", digits[3:5], 1)


def _zone_name(second: datetime) -> str:
    """`CET`; an offset alone has no name and stands for itself."""
    name = second.tzname() or ""
    return second.strftime("%z") if name[:4] in {"UTC+", "UTC-"} or not name else name


# Not by strftime, which asks the machine's locale.
_MONTHS = (  # noqa: SIM905
    "January February March April May June July August September October November December"
).split()
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()  # noqa: SIM905
_TOKENS: dict[str, Callable[[datetime], str]] = {
    "2006": lambda t: f"{t.year:04}",
    "06": lambda t: f"{t.year % 100:02}",
    "January": lambda t: _MONTHS[t.month - 1],
    "Jan": lambda t: _MONTHS[t.month - 1][:3],
    "01": lambda t: f"{t.month:02}",
    "1": lambda t: str(t.month),
    "02": lambda t: f"{t.day:02}",
    "_2": lambda t: f"{t.day:2}",
    "2": lambda t: str(t.day),
    "002": lambda t: f"{t.timetuple().tm_yday:03}",
    "__2": lambda t: f"{t.timetuple().tm_yday:3}",
    "Monday": lambda t: _DAYS[t.weekday()],
    "Mon": lambda t: _DAYS[t.weekday()][:3],
    "15": lambda t: f"{t.hour:02}",
    "03": lambda t: f"{t.hour % 12 or 12:02}",
    "3": lambda t: str(t.hour % 12 or 12),
    "04": lambda t: f"{t.minute:02}",
    "4": lambda t: str(t.minute),
    "05": lambda t: f"{t.second:02}",
    "5": lambda t: str(t.second),
    "PM": lambda t: "PM" if t.hour >= 12 else "AM",
    "pm": lambda t: "pm" if t.hour >= 12 else "am",
    "MST": _zone_name,
}
_TOKEN = re.compile(
    r"(January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|002|0[1-6]|15|1|2006|2|__2|_2(?!006)|3|4|5|PM|pm"
    r"|[-Z](?:07:00:00|070000|07:00|0700|07)|[.,](?:0+|9+)(?![0-9]))"
)
_FUNCTIONS: dict[str, Callable[[Instant], str | int]] = {
    "RFC3339": rfc3339,
    "RFC3339Nano": rfc3339_nano,
    "Unix": unix,
    "UnixMilli": unix_milli,
}
_LAYOUTS = {
    "DateTime": "2006-01-02 15:04:05",
    "DateOnly": "2006-01-02",
    "TimeOnly": "15:04:05",
    "Kitchen": "3:04PM",
    "Stamp": "Jan _2 15:04:05",
    "StampMilli": "Jan _2 15:04:05.000",
    "StampMicro": "Jan _2 15:04:05.000000",
    "StampNano": "Jan _2 15:04:05.000000000",
    "ANSIC": "Mon Jan _2 15:04:05 2006",
    "UnixDate": "Mon Jan _2 15:04:05 MST 2006",
    "RubyDate": "Mon Jan 02 15:04:05 -0700 2006",
    "RFC822": "02 Jan 06 15:04 MST",
    "RFC822Z": "02 Jan 06 15:04 -0700",
    "RFC850": "Monday, 02-Jan-06 15:04:05 MST",
    "RFC1123": "Mon, 02 Jan 2006 15:04:05 MST",
    "RFC1123Z": "Mon, 02 Jan 2006 15:04:05 -0700",
    "Layout": "01/02 03:04:05PM '06 -0700",
}
_NAMES = ", ".join((*_FUNCTIONS, *_LAYOUTS))
# `rfc3339` and `ISO8601` hold digits that a layout would take for parts of a date.
_A_NAME = re.compile(r"(rfc|iso|unix|epoch|time\.)", re.IGNORECASE)


def _is_layout(text: str) -> str:
    layout(text)
    return text


LayoutText = Annotated[str, AfterValidator(_is_layout)]
