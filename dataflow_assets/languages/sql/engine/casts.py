"""CAST: values of one type as values of another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from dataflow_assets.languages.sql.engine.numbers import number_reader, numbers, wrapper
from dataflow_assets.languages.sql.engine.texts import (
    as_text,
    parsed_date,
    parsed_moment,
    parsed_time,
)
from dataflow_assets.languages.sql.engine.types import FlinkType

Cast = Callable[[Any], Any]
"""A value that is not null -> a value, or null where a decimal overflows. Raises ValueError."""

_FIRST_DAY = date(1970, 1, 1)
_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "0"})


def cast(given: FlinkType, wanted: FlinkType, zone: ZoneInfo) -> Cast | None:
    """Returns what casts; None where Flink does not cast such values either.

    `zone`: `table.local-time-zone`, between TIMESTAMP and TIMESTAMP_LTZ.
    """
    if given.kind == "NULL":
        return lambda value: value
    if wanted.text:
        return _to_text(given, wanted, zone)
    if given.items or wanted.items:
        return _cast_nested(given, wanted, zone)
    if wanted.numeric:
        return _to_number(given, wanted)
    if wanted.kind == "BOOLEAN":
        return _to_boolean(given)
    if wanted.kind == "VARBINARY":
        return _to_bytes(given, wanted)
    if wanted.kind in ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ"):
        return _to_time(given, wanted, zone)
    return _same(given, wanted)


def _to_bytes(given: FlinkType, wanted: FlinkType) -> Cast | None:
    """Longer ones are cut; BINARY is filled with zeros."""
    most, least = wanted.length, wanted.length if wanted.fixed else 0
    if given.text:
        return lambda value: value.encode()[:most].ljust(least, b"\0")
    if given.kind != wanted.kind:
        return None
    return lambda value: value[:most].ljust(least, b"\0")


def _same(given: FlinkType, wanted: FlinkType) -> Cast | None:
    return (lambda value: value) if given.kind == wanted.kind else None


def _to_number(given: FlinkType, wanted: FlinkType) -> Cast | None:
    if given.text:
        return number_reader(wanted)
    make = numbers(wanted)
    if given.kind == "BOOLEAN":
        return lambda value: make(Decimal(int(value)))
    if not given.numeric:
        return None
    if wanted == given:
        return lambda value: value
    return wrapper(wanted.kind) if wanted.integer and given.integer else make


def _to_boolean(given: FlinkType) -> Cast | None:
    if given.text:
        return _truth
    if given.integer:
        return lambda value: value != 0
    return _same(given, FlinkType("BOOLEAN"))


def _truth(text: str) -> bool:
    word = text.lower()
    if word not in _TRUE | _FALSE:
        raise ValueError("the text is not a boolean")
    return word in _TRUE


def _to_text(given: FlinkType, wanted: FlinkType, zone: ZoneInfo) -> Cast:
    """CHAR and VARCHAR keep their length: longer texts are cut, shorter CHARs are filled."""
    if given.text and (wanted.kind == "VARCHAR" and wanted.length >= given.length):
        return lambda value: value
    most, fills = wanted.length, wanted.kind == "CHAR"

    def make(value: Any) -> str:
        text = as_text(value, given, zone)[:most]
        return text.ljust(most) if fills else text

    return make


def _to_time(given: FlinkType, wanted: FlinkType, zone: ZoneInfo) -> Cast | None:
    cut = cutter(wanted)
    if given.text:
        return _time_of_text(wanted, zone)
    if given.kind == wanted.kind:
        return cut
    local = _LOCAL.get(given.kind)
    if local is None or {given.kind, wanted.kind} == {"DATE", "TIME"}:
        return None
    make = _OF_LOCAL[wanted.kind]
    return lambda value: cut(make(local(value, zone), zone))


def _time_of_text(wanted: FlinkType, zone: ZoneInfo) -> Cast:
    cut = cutter(wanted)
    if wanted.kind == "DATE":
        return lambda text: parsed_date(text.strip())
    if wanted.kind == "TIME":
        return lambda text: cut(parsed_time(text.strip()))
    if wanted.kind == "TIMESTAMP":
        return lambda text: cut(parsed_moment(text.strip()))
    return lambda text: cut(to_utc(parsed_moment(text.strip()), zone))


def to_utc(value: datetime, zone: ZoneInfo) -> datetime:
    """Returns what a clock in the zone showed, as TIMESTAMP_LTZ."""
    return value.replace(tzinfo=zone).astimezone(UTC)


def to_local(value: datetime, zone: ZoneInfo) -> datetime:
    """TIMESTAMP_LTZ as a clock in the zone shows it."""
    return value.astimezone(zone).replace(tzinfo=None)


_LOCAL: Mapping[str, Callable[[Any, ZoneInfo], datetime]] = {
    "DATE": lambda value, _: datetime(value.year, value.month, value.day),  # noqa: DTZ001
    "TIME": lambda value, _: datetime.combine(_FIRST_DAY, value),
    "TIMESTAMP": lambda value, _: value,
    "TIMESTAMP_LTZ": to_local,
}
"""By its kind what a clock in a zone shows at a time."""
_OF_LOCAL: Mapping[str, Callable[[datetime, ZoneInfo], Any]] = {
    "DATE": lambda value, _: value.date(),
    "TIME": lambda value, _: value.time(),
    "TIMESTAMP": lambda value, _: value,
    "TIMESTAMP_LTZ": to_utc,
}


def cutter(wanted: FlinkType) -> Callable[[Any], Any]:
    """Cuts fractions of a second to the digits of a type."""
    if wanted.kind == "DATE" or wanted.length >= 6:
        return lambda value: value
    unit: int = 10 ** (6 - wanted.length)

    def cut(value: datetime | time) -> datetime | time:
        rest = value.microsecond % unit
        return value.replace(microsecond=value.microsecond - rest) if rest else value

    return cut


def _cast_nested(given: FlinkType, wanted: FlinkType, zone: ZoneInfo) -> Cast | None:
    if given.kind != wanted.kind or len(given.items) != len(wanted.items):
        return None
    casts = [cast(a, b, zone) for a, b in zip(given.items, wanted.items, strict=True)]
    if None in casts:
        return None
    inner = [or_null(one) for one in casts if one is not None]
    if given.kind == "ARRAY":
        return lambda value: [inner[0](one) for one in value]
    if given.kind == "MAP":
        return lambda value: {inner[0](k): inner[1](v) for k, v in value.items()}
    return lambda value: [one(each) for one, each in zip(inner, value, strict=True)]


def or_null(change: Cast) -> Cast:
    return lambda value: None if value is None else change(value)
