"""CAST: values of one type as values of another one."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

from dataflow_assets.sql.texts import as_text, parsed_date, parsed_moment, parsed_time
from dataflow_assets.sql.types import BITS, Type

Cast = Callable[[Any], Any]
"""A value that is not null -> a value, or null where a decimal overflows. Raises ValueError."""

_WHOLE = re.compile(r"([+-]?(?:[0-9]+|(?=\.[0-9])))(?:\.[0-9]*)?")
_HEX = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]{1,9})[dDfF]?"
)
_NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?)[dDfF]?")
_WORDS = re.compile(r"([+-]?(?:NaN|Infinity))")
_FIRST_DAY = date(1970, 1, 1)
_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "0"})
_EXACT = Context(prec=80)  # of what is computed before a result is rounded to its own digits


def cast(given: Type, wanted: Type, zone: ZoneInfo) -> Cast | None:
    """What casts; None where Flink does not cast such values either.

    `zone`: `table.local-time-zone`, between TIMESTAMP and TIMESTAMP_LTZ.
    """
    if given.kind == "NULL":
        return lambda value: value
    if wanted.text:
        return _to_text(given, wanted, zone)
    if given.items or wanted.items:
        return _nested(given, wanted, zone)
    if wanted.numeric:
        return _to_number(given, wanted)
    if wanted.kind == "BOOLEAN":
        return _to_boolean(given)
    if wanted.kind == "VARBINARY":
        return _to_bytes(given, wanted)
    if wanted.kind in ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ"):
        return _to_time(given, wanted, zone)
    return _same(given, wanted)


def _to_bytes(given: Type, wanted: Type) -> Cast | None:
    """Longer ones are cut."""
    most = wanted.length
    if given.text:
        return lambda value: value.encode()[:most]
    return (lambda value: value[:most]) if given.kind == wanted.kind else None


def _same(given: Type, wanted: Type) -> Cast | None:
    return (lambda value: value) if given.kind == wanted.kind else None


def wrapped(kind: str, value: int) -> int:
    """A whole number as Java keeps it: what does not fit begins again at the other end."""
    bits = BITS[kind]
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def bounds(kind: str) -> tuple[int, int]:
    """The least and the largest of a kind of whole numbers."""
    most = 1 << BITS[kind] - 1
    return -most, most - 1


def wrapper(kind: str) -> Callable[[int], int]:
    """The same as `wrapped`, for many values of one kind."""
    least, most = bounds(kind)
    return lambda value: value if least <= value <= most else wrapped(kind, value)


def rounder(wanted: Type) -> Callable[[Decimal], Decimal | None]:
    """What gives decimals the digits of a type; null where they have more before the point."""
    unit, most = Decimal(1).scaleb(-wanted.scale), Decimal(1).scaleb(wanted.length - wanted.scale)

    def rounded(value: Decimal) -> Decimal | None:
        try:
            found = value.quantize(unit, ROUND_HALF_UP, _EXACT)
        except InvalidOperation:
            return None
        return positive_zero(found) if -most < found < most else None

    return rounded


def positive_zero(value: Decimal) -> Decimal:
    """A decimal as Java keeps it: its zero has no sign."""
    return value or value.copy_abs()


def single(value: float) -> float:
    """A number as FLOAT keeps it."""
    try:
        found: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return found


def _to_number(given: Type, wanted: Type) -> Cast | None:
    if given.text:
        return _numbers_of_texts(wanted)
    make = _numbers(wanted)
    if given.kind == "BOOLEAN":
        return lambda value: make(Decimal(int(value)))
    if not given.numeric:
        return None
    if wanted == given:
        return lambda value: value
    return wrapper(wanted.kind) if wanted.integer and given.integer else make


def _numbers_of_texts(wanted: Type) -> Cast:
    """As Java reads them, with blanks around; of a whole number a fraction is cut.

    They raise ValueError for what is not a number, and for a number that does not fit.
    """
    make = _numbers(wanted)
    shape = _WHOLE if wanted.integer else _NUMBER

    def read(text: str) -> Any:
        found = shape.fullmatch(text.strip())
        if found is not None:
            digits = found[1] if found[1].strip("+-") else "0"
            return _fitting(make(_in_bounds(Decimal(digits), wanted)), wanted)
        if wanted.kind not in ("FLOAT", "DOUBLE"):
            raise ValueError("the text is not a number")
        return make(_beside_digits(text.strip()))

    return read


def _beside_digits(text: str) -> float:
    """NaN, an infinity, or hexadecimal digits: what Java reads beside decimal ones."""
    if word := _WORDS.fullmatch(text):
        return float(word[1])
    digits = _HEX.fullmatch(text)
    if digits is None:
        raise ValueError("the text is not a number")
    try:
        return float.fromhex(digits[1])
    except OverflowError:
        return math.copysign(math.inf, -1 if text.startswith("-") else 1)


def _fitting(value: Any, wanted: Type) -> Any:
    """Of a text a number that does not fit is an error, also a decimal."""
    if value is None:
        raise ValueError(f"the number does not fit into {wanted}")
    return value


def _in_bounds(value: Decimal, wanted: Type) -> Decimal:
    if wanted.integer:
        least, most = bounds(wanted.kind)
        if not least - 1 < value < most + 1:
            raise ValueError(f"the number does not fit into {wanted}")
    return value


def _numbers(wanted: Type) -> Cast:
    """Of numbers of any other type."""
    if wanted.kind == "DECIMAL":
        return _decimals(wanted)
    if wanted.kind == "DOUBLE":
        return float
    if wanted.kind == "FLOAT":
        return lambda value: single(float(value))
    wrap, kind = wrapper(wanted.kind), wanted.kind
    return lambda value: _clamped(value, kind) if isinstance(value, float) else wrap(int(value))


def _decimals(wanted: Type) -> Cast:
    cut = rounder(wanted)

    def make(value: Any) -> Decimal | None:
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        return cut(exact) if exact.is_finite() else None

    return make


def _clamped(value: float, kind: str) -> int:
    """As Java makes whole numbers of floating ones: NaN is 0, the largest stays the largest."""
    if math.isnan(value):
        return 0
    bits = max(BITS[kind], 32)
    most = (1 << bits - 1) - 1
    whole = most if value >= most else -most - 1 if value <= -most - 1 else int(value)
    return wrapped(kind, whole)


def _to_boolean(given: Type) -> Cast | None:
    if given.text:
        return _truth
    if given.integer:
        return lambda value: value != 0
    return _same(given, Type("BOOLEAN"))


def _truth(text: str) -> bool:
    word = text.lower()
    if word not in _TRUE | _FALSE:
        raise ValueError("the text is not a boolean")
    return word in _TRUE


def _to_text(given: Type, wanted: Type, zone: ZoneInfo) -> Cast:
    """CHAR and VARCHAR keep their length: longer texts are cut, shorter CHARs are filled."""
    if given.text and (wanted.kind == "VARCHAR" and wanted.length >= given.length):
        return lambda value: value
    most, fills = wanted.length, wanted.kind == "CHAR"

    def make(value: Any) -> str:
        text = as_text(value, given, zone)[:most]
        return text.ljust(most) if fills else text

    return make


def _to_time(given: Type, wanted: Type, zone: ZoneInfo) -> Cast | None:
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


def _time_of_text(wanted: Type, zone: ZoneInfo) -> Cast:
    cut = cutter(wanted)
    if wanted.kind == "DATE":
        return lambda text: parsed_date(text.strip())
    if wanted.kind == "TIME":
        return lambda text: cut(parsed_time(text.strip()))
    if wanted.kind == "TIMESTAMP":
        return lambda text: cut(parsed_moment(text.strip()))
    return lambda text: cut(to_utc(parsed_moment(text.strip()), zone))


def to_utc(value: datetime, zone: ZoneInfo) -> datetime:
    """What a clock in the zone showed, as TIMESTAMP_LTZ."""
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


def cutter(wanted: Type) -> Callable[[Any], Any]:
    """Cuts fractions of a second to the digits of a type."""
    if wanted.kind == "DATE" or wanted.length >= 6:
        return lambda value: value
    unit: int = 10 ** (6 - wanted.length)

    def cut(value: datetime | time) -> datetime | time:
        rest = value.microsecond % unit
        return value.replace(microsecond=value.microsecond - rest) if rest else value

    return cut


def _nested(given: Type, wanted: Type, zone: ZoneInfo) -> Cast | None:
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
    """The same also of null, which stays null."""
    return lambda value: None if value is None else change(value)
