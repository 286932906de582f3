"""Times as text: RFC 3339 with every digit of the fraction, Go layouts, zones.

Nothing is rounded: a fraction is kept as its digits, and an epoch number is taken apart as the
integer or decimal that it is. Whoever asks for fewer digits gets the others cut off, as in Go.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Annotated, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import AfterValidator

MILLISECONDS = 10**12  # an epoch number from here on counts milliseconds, below it seconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
_RANGE = "lies outside the years 1 to 9999"
_FINEST = 1_000  # decimal places of an epoch number; `1e-999999999` would fill the memory
_HH_MM = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TEXT = re.compile(
    rf"(\d{{4}}-\d\d-\d\d)[Tt ]({_HH_MM}:\d\d)(?:[.,](\d+))?([Zz]|[+-]{_HH_MM})?", re.ASCII
)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_OFFSET = re.compile(rf"[+-]{_HH_MM}", re.ASCII)
_NO_ZONES = ("right/", "posix/", "posixrules", "localtime", "Factory")
"""In the zone files of many machines: leap seconds counted, or the machine's own zone."""


class Instant(NamedTuple):
    """A moment, exact to its last digit."""

    second: datetime
    """Aware, without microseconds."""
    fraction: str
    """The digits behind the point, without zeros at the end."""

    @classmethod
    def of(cls, moment: datetime) -> Instant:
        """An aware datetime, in its own zone."""
        return cls(moment.replace(microsecond=0), f"{moment.microsecond:06}".rstrip("0"))

    def at(self, zone: tzinfo) -> Instant:
        """The same moment on the clocks of another zone."""
        try:
            second = self.second.astimezone(zone)
            # Before 1973 some offsets had seconds, which RFC 3339 cannot write.
            return Instant(_whole_minutes(second) if second.year < 1973 else second, self.fraction)
        except (OverflowError, ValueError):
            raise ValueError(_RANGE) from None


def _whole_minutes(second: datetime) -> datetime:
    offset = second.utcoffset() or timedelta()
    seconds = offset % _MINUTE
    return second.astimezone(timezone(offset - seconds)) if seconds else second


def read(text: str, zone: tzinfo) -> Instant:
    """RFC 3339, the same without a zone (then it is in `zone`), or an epoch number as text.

    A time that the clocks of `zone` show twice is the first of the two; one that they skip is
    counted from the offset before the change, so that 02:30 becomes 03:30.
    """
    text = text.strip()
    match = _TEXT.fullmatch(text)
    if match is None:
        if _NUMBER.fullmatch(text):
            return of_epoch(Decimal(text))
        raise ValueError("is no time")
    day, time, fraction, offset = match.groups()
    second = datetime.fromisoformat(f"{day}T{time}{(offset or '').upper()}")
    fraction = fraction.rstrip("0") if fraction else ""
    return Instant(second, fraction) if offset else _local(second, fraction, zone)


def _local(second: datetime, fraction: str, zone: tzinfo) -> Instant:
    # By way of UTC: from a zone into the very same zone a skipped hour would stay as it is.
    return Instant(second.replace(tzinfo=zone), fraction).at(UTC)


def of_epoch(number: int | Decimal) -> Instant:
    """Seconds since 1970, or milliseconds from 10^12 on, to the last decimal."""
    units, places = (number, 0) if isinstance(number, int) else _exactly(number)
    if number >= MILLISECONDS or number <= -MILLISECONDS:
        places += 3
    seconds, rest = divmod(units, 10**places)
    try:
        second = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError(_RANGE) from None
    return Instant(second, str(rest).zfill(places).rstrip("0") if rest else "")


def _exactly(number: Decimal) -> tuple[int, int]:
    """An integer and its decimal places; Decimal's own arithmetic would round to 28 digits."""
    if number.adjusted() > 20:
        raise ValueError(_RANGE)
    if number.adjusted() < -_FINEST or len(number.as_tuple().digits) > _FINEST:
        raise ValueError(f"has more than {_FINEST} digits")
    whole, _, decimals = format(number, "f").partition(".")
    return int(whole + decimals), len(decimals)


def rfc3339(instant: Instant) -> str:
    """To the second: `2026-01-31T12:00:00Z`, `2026-01-31T15:00:00+03:00`."""
    text = instant.second.isoformat()
    return text[:19] + "Z" if text.endswith("+00:00") else text


def rfc3339_nano(instant: Instant) -> str:
    """With as many digits as the moment has."""
    text = rfc3339(instant)
    return f"{text[:19]}.{instant.fraction}{text[19:]}" if instant.fraction else text


def unix(instant: Instant) -> str:
    """Seconds since 1970, as text."""
    return str(_seconds(instant))


def unix_milli(instant: Instant) -> int:
    """Milliseconds since 1970, as a number."""
    return _seconds(instant) * 1000 + int(instant.fraction[:3].ljust(3, "0"))


def _seconds(instant: Instant) -> int:
    return (instant.second - _EPOCH) // timedelta(seconds=1)


def zone(name: str) -> tzinfo:
    """By name of the IANA database, or `+hh:mm`. ValueError for anything else."""
    if _OFFSET.fullmatch(name):
        minutes = int(name[1:3]) * 60 + int(name[4:])
        return timezone(timedelta(minutes=-minutes if name[0] == "-" else minutes))
    try:
        if name and not name.startswith(_NO_ZONES):
            return UTC if name == "UTC" else ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        pass  # not found, a folder, a path that leads outside
    raise ValueError("is no time zone: wanted is a name like Europe/Berlin, or +hh:mm")


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


def _is_zone(name: str) -> str:
    zone(name)
    return name


def _is_layout(text: str) -> str:
    layout(text)
    return text


ZoneName = Annotated[str, AfterValidator(_is_zone)]
LayoutText = Annotated[str, AfterValidator(_is_layout)]
