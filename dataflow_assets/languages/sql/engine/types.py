"""Flink's types, and which type comes of several.

| kind | value in Python |
|---|---|
| BOOLEAN | bool |
| TINYINT, SMALLINT, INT, BIGINT | int |
| FLOAT, DOUBLE | float |
| DECIMAL | Decimal |
| CHAR, VARCHAR | str |
| VARBINARY | bytes |
| DATE, TIME | date, time |
| TIMESTAMP | datetime without a zone |
| TIMESTAMP_LTZ | datetime in UTC |
| MONTHS, MILLIS (intervals) | int |
| ARRAY, ROW | list |
| MAP | dict |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

LONGEST = 2_147_483_647
MOST_DIGITS = 38
INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
_FLOATS = ("FLOAT", "DOUBLE")
_MANTISSA = {"FLOAT": 24, "DOUBLE": 53}
"""Bits of whole numbers that a floating one holds exactly."""


@dataclass(frozen=True)
class FlinkType:
    """One type; whether a value may be null is part of a column, not of the type."""

    kind: str
    length: int = 0
    """Of CHAR, VARCHAR and VARBINARY; digits of DECIMAL, TIME, TIMESTAMP and TIMESTAMP_LTZ."""
    scale: int = 0
    """Of DECIMAL."""
    items: tuple[FlinkType, ...] = ()
    """Of an ARRAY its one, of a MAP key and value, of a ROW those of its fields."""
    names: tuple[str, ...] = ()
    """Of a ROW."""
    fixed: bool = False
    """BINARY: a cast fills shorter ones with zeros."""

    def __str__(self) -> str:
        if self.kind == "DECIMAL":
            return f"DECIMAL({self.length}, {self.scale})"
        if self.kind in ("VARCHAR", "VARBINARY") and self.length == LONGEST:
            return "STRING" if self.kind == "VARCHAR" else "BYTES"
        if self.kind == "ROW":
            pairs = zip(self.names, self.items, strict=True)
            return f"ROW<{', '.join(f'{name} {item}' for name, item in pairs)}>"
        if self.items:
            return f"{self.kind}<{', '.join(map(str, self.items))}>"
        if self.fixed:
            return f"BINARY({self.length})"
        names = {"MONTHS": "INTERVAL MONTH", "MILLIS": "INTERVAL SECOND"}
        digits = f"({self.length})" if self.length else ""
        return f"{names.get(self.kind, self.kind)}{digits}"

    @property
    def size(self) -> int:
        """Returns how many types it is made of, itself included."""
        return 1 + sum(one.size for one in self.items)

    @property
    def integer(self) -> bool:
        return self.kind in INTEGERS

    @property
    def exact(self) -> bool:
        """Returns whether it is a whole number or a decimal."""
        return self.integer or self.kind == "DECIMAL"

    @property
    def numeric(self) -> bool:
        return self.exact or self.kind in _FLOATS

    @property
    def text(self) -> bool:
        return self.kind in ("CHAR", "VARCHAR")

    @property
    def moment(self) -> bool:
        return self.kind in ("TIMESTAMP", "TIMESTAMP_LTZ")

    @property
    def interval(self) -> bool:
        return self.kind in ("MONTHS", "MILLIS")


NULL = FlinkType("NULL")
BOOLEAN = FlinkType("BOOLEAN")
INT = FlinkType("INT")
BIGINT = FlinkType("BIGINT")
DOUBLE = FlinkType("DOUBLE")
STRING = FlinkType("VARCHAR", LONGEST)
BYTES = FlinkType("VARBINARY", LONGEST)
DATE = FlinkType("DATE")
TIMESTAMP = FlinkType("TIMESTAMP", 3)
TIMESTAMP_LTZ = FlinkType("TIMESTAMP_LTZ", 3)
MONTHS = FlinkType("MONTHS")
MILLIS = FlinkType("MILLIS")


def decimal(digits: int, scale: int) -> FlinkType:
    """A DECIMAL of at most 38 digits: digits of the fraction go first, but the last six of them."""
    if digits > MOST_DIGITS:
        whole = digits - scale
        scale = max(MOST_DIGITS - whole, min(scale, 6))
        digits = MOST_DIGITS
    return FlinkType("DECIMAL", digits, scale)


def as_decimal(one: FlinkType) -> FlinkType:
    """The DECIMAL that holds every value of an exact type."""
    return one if one.kind == "DECIMAL" else FlinkType("DECIMAL", _DIGITS[one.kind], 0)


def common(types: Iterable[FlinkType]) -> FlinkType | None:
    """The type that values of all of them become, as in CASE; None where there is none."""
    kind: FlinkType | None = NULL
    for one in types:
        kind = _common(kind, one)
    return kind


def _common(one: FlinkType | None, other: FlinkType) -> FlinkType | None:
    if one is None or other in (one, NULL):
        return one
    if one == NULL:
        return other
    if one.numeric and other.numeric:
        return _number(one, other)
    if one.text and other.text:
        return FlinkType("VARCHAR", max(one.length, other.length))
    if one.kind == other.kind and one.kind in ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "VARBINARY"):
        return replace(one, length=max(one.length, other.length), fixed=False)
    if {one.kind, other.kind} == {"DATE", "TIMESTAMP"}:
        return one if one.moment else other
    if one.kind == other.kind and len(one.items) == len(other.items):
        items = [_common(a, b) for a, b in zip(one.items, other.items, strict=True)]
        if None not in items:
            return replace(one, items=tuple(item for item in items if item is not None))
    return None


def _number(one: FlinkType, other: FlinkType) -> FlinkType:
    if one.integer and other.integer:
        return max(one, other, key=lambda each: BITS[each.kind])
    if one.exact and other.exact:
        a, b = as_decimal(one), as_decimal(other)
        scale = max(a.scale, b.scale)
        return decimal(max(a.length - a.scale, b.length - b.scale) + scale, scale)
    return DOUBLE if {one.kind, other.kind} & {"DOUBLE", "DECIMAL"} else FlinkType("FLOAT")


def _widens(given: FlinkType, wanted: FlinkType) -> bool:
    """Whole numbers into larger ones, decimals and floating ones; nothing into whole numbers."""
    if wanted.integer:
        return given.integer and BITS[given.kind] <= BITS[wanted.kind]
    return wanted.kind != "FLOAT" or given.kind != "DOUBLE"


def assignable(given: FlinkType, wanted: FlinkType) -> bool:
    """Returns whether Flink casts by itself, where a query's column goes into that of a table."""
    if given in (NULL, wanted):
        return True
    if given.numeric and wanted.numeric:
        return _widens(given, wanted)
    if given.kind == wanted.kind and given.items:
        pairs = zip(given.items, wanted.items, strict=False)
        return len(given.items) == len(wanted.items) and all(assignable(a, b) for a, b in pairs)
    times = ("TIMESTAMP", "TIMESTAMP_LTZ")
    either = (given.text and wanted.text) or (given.kind in times and wanted.kind in times)
    return either or given.kind == wanted.kind


def keeps_apart(given: FlinkType, wanted: FlinkType) -> bool:
    """Tells whether values that differ still differ once cast: all digits have their place.

    Values may be longer or shorter than their type says. A cast fills a CHAR and cuts a VARBINARY,
    inside of a ROW or an ARRAY also where that type stays as it is.
    """
    return given == wanted or _casts_apart(given, wanted)


def _casts_apart(given: FlinkType, wanted: FlinkType) -> bool:
    if given.items:
        pairs = list(zip(given.items, wanted.items, strict=False))
        same = given.kind == wanted.kind and len(given.items) == len(wanted.items)
        return same and given.kind != "MAP" and all(_casts_apart(a, b) for a, b in pairs)
    if given.numeric and wanted.numeric:
        return _keeps_digits(given, wanted)
    if given.text and wanted.text:
        return wanted.kind == "VARCHAR" and wanted.length >= given.length
    if given.kind != wanted.kind:
        return False
    return wanted.length >= (LONGEST if wanted.kind == "VARBINARY" else given.length)


def _keeps_digits(given: FlinkType, wanted: FlinkType) -> bool:
    if wanted.kind == "DECIMAL" and given.exact:
        own = as_decimal(given)
        whole = wanted.length - wanted.scale >= own.length - own.scale
        return whole and wanted.scale >= own.scale
    if wanted.kind in _MANTISSA and given.integer:
        return BITS[given.kind] <= _MANTISSA[wanted.kind]
    return given.kind != "DECIMAL" and wanted.kind != "DECIMAL" and _widens(given, wanted)
