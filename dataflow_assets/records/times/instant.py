"""Times as text: RFC 3339 with every digit of the fraction, epoch numbers, zones, durations.

Nothing is rounded: a fraction is kept as its digits, and an epoch number is taken apart as the
integer or decimal that it is. Whoever asks for fewer digits gets the others cut off, as in Go.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Annotated, Any, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import AfterValidator

MILLISECONDS = 10**12  # an epoch number from here on counts milliseconds, below it seconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
_EXPECTED = "RFC 3339, a date and time without zone, or an epoch number"
_RANGE = "lies outside the years 1 to 9999"
_FINEST = 1_000  # decimal places of an epoch number; `1e-999999999` would fill the memory
_HH_MM = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TEXT = re.compile(
    rf"(\d{{4}}-\d\d-\d\d)[Tt ]({_HH_MM}:\d\d)(?:[.,](\d+))?([Zz]|[+-]{_HH_MM})?", re.ASCII
)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_OFFSET = re.compile(rf"[+-]{_HH_MM}", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)", re.ASCII)
_LONGEST = timedelta(seconds=2**63 / 1e9)  # Go counts nanoseconds in 63 bits
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
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
        """Returns the same moment on the clocks of another zone."""
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


def read(value: Any, zone: tzinfo) -> Instant:
    """A moment from a JSON value. ValueError for what is no time.

    RFC 3339, the same without a zone (then it is in `zone`), or an epoch number, also as text. A
    time that the clocks of `zone` show twice is the first of the two; one that they skip is counted
    from the offset before the change, so that 02:30 becomes 03:30.
    """
    if isinstance(value, str):
        text = value.strip()
        match = _TEXT.fullmatch(text)
        if match:
            day, time, fraction, offset = match.groups()
            second = datetime.fromisoformat(f"{day}T{time}{(offset or '').upper()}")
            fraction = fraction.rstrip("0") if fraction else ""
            return Instant(second, fraction) if offset else _local(second, fraction, zone)
        value = Decimal(text) if _NUMBER.fullmatch(text) else None
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return of_epoch(value)
    raise ValueError(f"is not a time; expected {_EXPECTED}")


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
    text = instant.second.isoformat()
    return text[:19] + "Z" if text.endswith("+00:00") else text


def rfc3339_nano(instant: Instant) -> str:
    """With as many digits as the moment has."""
    text = rfc3339(instant)
    return f"{text[:19]}.{instant.fraction}{text[19:]}" if instant.fraction else text


def unix(instant: Instant) -> str:
    return str(_seconds(instant))


def unix_milli(instant: Instant) -> int:
    return _seconds(instant) * 1000 + int(instant.fraction[:3].ljust(3, "0"))


def _seconds(instant: Instant) -> int:
    return (instant.second - _EPOCH) // timedelta(seconds=1)


def zone(name: str) -> tzinfo:
    """Finds a zone by its name in the IANA database, or by `+hh:mm`. Raises ValueError."""
    if _OFFSET.fullmatch(name):
        minutes = int(name[1:3]) * 60 + int(name[4:])
        return timezone(timedelta(minutes=-minutes if name[0] == "-" else minutes))
    try:
        if name and not name.startswith(_NO_ZONES):
            return UTC if name == "UTC" else ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        pass  # not found, a folder, a path that leads outside
    raise ValueError("is not a time zone; write a name like Europe/Berlin, or +hh:mm")


def _is_zone(name: str) -> str:
    zone(name)
    return name


ZoneName = Annotated[str, AfterValidator(_is_zone)]


def duration(text: str, most: timedelta = _LONGEST) -> timedelta:
    """Reads Go's way to write a duration above zero, `1m30s` or `500ms`. Raises ValueError."""
    parts = _PART.findall(text)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or seconds <= 0:
        raise ValueError("must be a duration above zero, like 500ms or 1m30s")
    if seconds > most.total_seconds():
        raise ValueError(f"must be a duration of at most {most.days} days")
    return timedelta(seconds=seconds)
