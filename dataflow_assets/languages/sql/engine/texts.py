"""Values as text, and times of text, as Flink writes and reads them."""

from __future__ import annotations

import calendar
import math
import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from dataflow_assets.languages.sql.engine.types import FlinkType

_DATE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?")
_TIME = re.compile(r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,9}))?)?)?")
_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?: ([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{1,9}))?)?"
)


def parsed_date(text: str) -> date:
    """`yyyy-MM-dd`; what is behind a blank is left out. Raises ValueError."""
    match = _DATE.fullmatch(text.partition(" ")[0])
    if match is None:
        raise ValueError("the text is not a date")
    return date(int(match[1]), int(match[2] or 1), int(match[3] or 1))


def parsed_time(text: str) -> time:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("the text is not a time")
    micros = int((match[4] or "").ljust(6, "0")[:6])
    return time(int(match[1]), int(match[2] or 0), int(match[3] or 0), micros)


def parsed_moment(text: str) -> datetime:
    """`yyyy-MM-dd HH:mm:ss.f`; a date alone is its midnight. Raises ValueError.

    As in Java a day that its month has not is the last one of the month, and 24:00:00 the midnight
    at the day's end.
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError("the text is not a date and time")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if day <= 31 and 1 <= month <= 12 and 1 <= year <= 9999:
        day = min(day, calendar.monthrange(year, month)[1])
    micros = int((match[7] or "").ljust(6, "0")[:6])
    if (hour, minute, second, int(match[7] or 0)) == (24, 0, 0, 0):
        return datetime(year, month, day) + timedelta(days=1)  # noqa: DTZ001
    return datetime(year, month, day, hour, minute, second, micros)  # noqa: DTZ001


def clock_text(value: time | datetime, digits: int) -> str:
    """`HH:mm:ss`, and a fraction of so many digits."""
    text = f"{value.hour:02}:{value.minute:02}:{value.second:02}"
    return f"{text}.{value.microsecond:06}"[: 9 + digits] if digits else text


def moment_text(value: datetime, digits: int) -> str:
    return f"{date_text(value)} {clock_text(value, digits)}"


def date_text(value: date) -> str:
    return f"{value.year:04}-{value.month:02}-{value.day:02}"


def double_text(value: float) -> str:
    """Writes a double as Java does since version 19: `1.0`, `1.0E20`, `NaN`, `-Infinity`."""
    return _java_text(value, value)


def _java_text(value: float, exact: float) -> str:
    """`value` has the fewest digits that tell the number apart, `exact` is the number itself."""
    if math.isnan(value):
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if not value or 1e-3 <= abs(value) < 1e7:
        return f"{Decimal(repr(value)):f}" if "e" in repr(value) else repr(value)
    written = Decimal(repr(value))
    if len(written.normalize().as_tuple().digits) == 1:  # of two digits Java takes the nearest
        written = Decimal(f"{exact:.1e}")
    sign, digits, _ = written.as_tuple()
    kept = "".join(map(str, digits)).rstrip("0") or "0"
    return f"{'-' if sign else ''}{kept[0]}.{kept[1:] or '0'}E{written.adjusted()}"


def shortest(value: float) -> float:
    """Returns the number with the fewest digits that is the same FLOAT: 0.1 stays 0.1."""
    import numpy as np

    return float(str(np.float32(value)))


def float_text(value: float) -> str:
    import numpy as np

    return _java_text(shortest(value), float(np.float32(value)))


def as_text(value: Any, given: FlinkType, zone: ZoneInfo) -> str:
    """A value that is not null, as CAST to STRING writes it."""
    if given.text:
        return str(value)
    if given.kind == "BOOLEAN":
        return "TRUE" if value else "FALSE"
    if given.kind == "DECIMAL":
        return f"{value:f}"
    if given.kind == "DOUBLE":
        return double_text(value)
    if given.kind == "FLOAT":
        return float_text(value)
    if given.kind == "VARBINARY":
        return str(value.decode("utf-8", "replace"))
    if given.kind == "DATE":
        return date_text(value)
    if given.kind == "TIME":
        return clock_text(value, given.length)
    if given.moment:
        local = value.astimezone(zone) if given.kind == "TIMESTAMP_LTZ" else value
        return moment_text(local, given.length)
    return _nested_text(value, given, zone)


def _nested_text(value: Any, given: FlinkType, zone: ZoneInfo) -> str:
    def inner(one: Any, kind: FlinkType) -> str:
        return "NULL" if one is None else as_text(one, kind, zone)

    if given.kind == "ARRAY":
        return f"[{', '.join(inner(one, given.items[0]) for one in value)}]"
    if given.kind == "MAP":
        key, item = given.items
        return f"{{{', '.join(f'{inner(k, key)}={inner(v, item)}' for k, v in value.items())}}}"
    if given.kind == "ROW":
        pairs = zip(value, given.items, strict=True)
        return f"({', '.join(inner(one, kind) for one, kind in pairs)})"
    return str(value)
