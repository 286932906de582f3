"""One table of types: how each system spells them, and what becomes of values from JSON.

A row is a type. Its cases say under which condition a value comes, what is sent, and the text of
what is stored, or REJECTED; `at` has what differs in a system, or in one of its shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

REJECTED: Final = "(rejected)"
TABLES = ("postgresql", "clickhouse", "iceberg", "trino")
"""Systems whose columns have types."""
PG, CH, ICE, TRINO = TABLES
Condition = Literal[
    "present", "null", "missing", "out of range", "other zone", "text", "number", "other"
]
UUID, DAY = "9b155af0-0f06-4d56-a294-3d90a9f0a63d", "2020-02-29"


@dataclass(frozen=True)
class Case:
    """A value as JSON, and the text of what is stored of it."""

    condition: Condition
    sent: Any
    stored: str | None
    at: Mapping[str, str | None] = field(default_factory=dict)

    def expected(self, system: str, shape: str) -> str | None:
        """In this system, where the value stands there."""
        return self.at.get(f"{system} {shape}", self.at.get(system, self.stored))


@dataclass(frozen=True)
class Kind:
    """A type by its name in each system that has it."""

    spelled: Mapping[str, str]
    cases: tuple[Case, ...]


def _no(condition: Condition, *sent: Any, at: Mapping[str, str] | None = None) -> tuple[Case, ...]:
    return tuple(Case(condition, one, REJECTED, at or {}) for one in sent)


def _present(*pairs: tuple[Any, str]) -> tuple[Case, ...]:
    return tuple(Case("present", sent, text) for sent, text in pairs)


def _whole(low: int, high: int, **spelled: str) -> Kind:
    digits = "1" if high >= 2**64 or (PG in spelled and low == 0) else REJECTED
    return Kind(
        spelled,
        (
            *_present((low, str(low)), (high, str(high))),
            *_no("out of range", low - 1, high + 1, 2**300),
            Case("text", "1", digits),  # in columns without bounds, as decimals have them
            *_no("text", "x", ""),
            *_no("number", 1.5, 1.0, 1e300),
            *_no("other", True),
            *OBJECTS,
        ),
    )


def _signed(bits: int, **spelled: str) -> Kind:
    return _whole(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, clickhouse=f"Int{bits}", **spelled)


def _instants(zoned: bool, digits: int, bounds: tuple[str, str], **spelled: str) -> Kind:
    """`bounds`: moments that lie outside; ClickHouse's `DateTime` has neither fraction."""
    usual = f"{DAY} 12:00:00" + (f".{'123456789'[:digits]}" if digits else "")
    bare: Condition = "other zone" if zoned else "present"
    text = usual.replace(" ", "T")
    cases = (
        *_present((f"{text}Z", usual)),
        Case("other zone", f"{text.replace('T12', 'T17')}+05:00", usual),
        Case("other zone", f"{text.replace('T12', 'T06')}-0600", usual),
        Case(bare, text, REJECTED if zoned else usual),
        *(Case("out of range", one, REJECTED, {PG: far(one)}) for one in bounds),
        *_no("out of range", "2021-02-29T00:00:00Z", "2020-01-01T25:00:00Z"),
        *(Case("out of range", word, REJECTED, {PG: word}) for word in ("infinity", "-infinity")),
        *_no("text", "x", "", "now", DAY, "1582977600"),
        *_no("number", 1582977600, 1.5),
        *_no("other", True),
        *OBJECTS,
    )
    return Kind(spelled, cases)


def far(moment: str) -> str:
    """As PostgreSQL writes it: it has no year 0."""
    text = moment.replace("T", " ").removesuffix("Z")
    return text.replace("0000-", "0001-") + " BC" if text.startswith("0000") else text


OBJECTS = (
    Case("other", [], REJECTED, {"postgresql array": None}),  # `[[]]` is an array without elements
    Case("other", {}, REJECTED),
)
NOT_A_NUMBER = (("NaN", "nan"), ("Infinity", "inf"), ("-Infinity", "-inf"))
FLOATS = (
    *_present((0.5, "0.5"), (-0.0, "-0.0"), (7, "7.0"), *NOT_A_NUMBER),
    *_no("text", "x", "1.5", "0x10", ""),
    *_no("other", True),
    *OBJECTS,
)
KINDS = (
    Kind(
        {PG: "boolean", CH: "Bool", ICE: "boolean", TRINO: "boolean"},
        (
            *_present((True, "true"), (False, "false")),
            *_no("text", "true", "t", ""),
            *_no("number", 0, 1, 2, 1.0),
            *OBJECTS,
        ),
    ),
    _signed(8),
    _signed(16, postgresql="smallint"),
    _signed(32, postgresql="integer", iceberg="int", trino="integer"),
    _signed(64, postgresql="bigint", iceberg="long", trino="bigint"),
    _signed(128),
    _signed(256),
    *(_whole(0, 2**bits - 1, clickhouse=f"UInt{bits}") for bits in (8, 16, 32, 64, 128, 256)),
    _whole(0, 2**32 - 1, postgresql="oid"),
    Kind(
        {PG: "real", CH: "Float32", ICE: "float", TRINO: "real"},
        (
            *FLOATS,
            *_present((0.1, "0.1"), (1e-45, "1e-45")),
            Case("out of range", 16777217, "16777216.0"),  # the nearest
            *_no("out of range", 1e39, -1e39),
        ),
    ),
    Kind(
        {PG: "double precision", CH: "Float64", ICE: "double", TRINO: "double"},
        (
            *FLOATS,
            *_present(
                (0.1, "0.1"),
                (5e-324, "5e-324"),
                (1.7976931348623157e308, "1.7976931348623157e+308"),
            ),
            Case("out of range", 2**53 + 1, "9007199254740992.0"),  # the nearest
            *_no("out of range", 10**400),
        ),
    ),
    Kind(
        {PG: "numeric(5, 2)", CH: "Decimal(5, 2)", ICE: "decimal(5,2)", TRINO: "decimal(5, 2)"},
        (
            *_present((1.25, "1.25"), (-999.99, "-999.99"), (7, "7")),
            *_no("out of range", 1000, 1234.5, 1e300),
            Case("out of range", 1.005, REJECTED, {PG: "1.01"}),  # as its assignment rounds
            Case("text", "1.25", "1.25"),
            Case("text", "NaN", REJECTED, {PG: "nan"}),
            *_no("text", "x", "Infinity", ""),
            *_no("other", True),
            *OBJECTS,
        ),
    ),
    Kind(
        {PG: "numeric", CH: "Decimal(76, 2)"},
        (
            *_present((10**60, str(10**60)), (-1, "-1")),
            Case("out of range", 10**75, REJECTED, {PG: str(10**75)}),
            Case("text", "Infinity", REJECTED, {PG: "inf"}),
            *_no("text", "x", ""),
            *_no("other", True),
            *OBJECTS,
        ),
    ),
    Kind(
        {PG: "text", CH: "String", ICE: "string", TRINO: "varchar"},
        (
            *_present(
                ("ü\n\"'\\", "ü\n\"'\\"), ("", ""), ("NULL", "NULL"), ("{}", "{}"), ("[1]", "[1]")
            ),
            Case("out of range", "a\0b", "a\0b", {PG: REJECTED}),
            Case("number", 5, REJECTED, {"postgresql array": "5"}),
            Case("other", True, REJECTED, {"postgresql array": "true"}),
            Case("other", {}, REJECTED, {"postgresql array": "{}"}),
            OBJECTS[0],
        ),
    ),
    Kind(
        {PG: "varchar(3)", CH: "FixedString(3)"},
        (
            *_present(("abc", "abc")),
            *_no("out of range", "abcd"),
            Case("number", 5, REJECTED, {"postgresql array": "5"}),
        ),
    ),
    Kind(
        {PG: "bytea", ICE: "binary", TRINO: "varbinary"},
        (
            *_present(("AP8=", "00ff"), ("", "")),
            *_no("text", "?", "A", "AP8"),
            *_no("number", 5),
            *_no("other", True),
            *OBJECTS,
        ),
    ),
    Kind(
        {PG: "uuid", CH: "UUID", ICE: "uuid", TRINO: "uuid"},
        (
            *_present((UUID, UUID), (UUID.upper(), UUID)),
            *_no("text", "x", "", UUID[:-1], f"{UUID}a"),
            *_no("number", 5),
            *_no("other", True),
            *OBJECTS,
        ),
    ),
    Kind(
        {PG: "date", CH: "Date32", ICE: "date", TRINO: "date"},
        (
            *_present(
                (DAY, DAY),
                ("1900-01-01", "1900-01-01"),
                ("0001-01-01", "0001-01-01"),
                ("9999-12-31", "9999-12-31"),
            ),
            *(
                Case("out of range", day, REJECTED, {PG: day})
                for day in ("10000-01-01", "infinity", "-infinity")
            ),
            Case("out of range", "0000-01-01", REJECTED, {PG: "0001-01-01 BC"}),
            *_no("out of range", "2021-02-29"),
            *_no("other zone", "2020-02-29T12:00:00Z"),
            *_no("text", "x", "", "now", "29.02.2020"),
            *_no("number", 18321, 1.5),
            *_no("other", True),
            *OBJECTS,
        ),
    ),
    Kind({CH: "Date"}, (*_present((DAY, DAY)), *_no("out of range", "1969-12-31", "2149-06-07"))),
    Kind(
        {PG: "time", CH: "Time64(6)", ICE: "time", TRINO: "time(6)"},
        (
            *_present(
                ("10:00:00.5", "10:00:00.5"),
                ("23:59:59.999999", "23:59:59.999999"),
                ("00:00:00", "00:00:00"),
            ),
            Case("out of range", "24:00:00", REJECTED, {PG: "24:00:00", CH: "24:00:00"}),
            Case("out of range", "23:59:59.9999996", REJECTED, {PG: "24:00:00"}),
            Case("out of range", "100:00:01", REJECTED, {CH: "100:00:01"}),
            *_no("out of range", "10:60:00", "1000:00:00"),
            Case("other zone", "10:00:00Z", "10:00:00", {CH: REJECTED}),
            *_no("other zone", "10:00:00+02:00"),
            *_no("text", "x", "", "now"),
            *_no("number", 5, 1.5),
            *_no("other", True),
            *OBJECTS,
        ),
    ),
    _instants(
        True,
        6,
        ("10000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        postgresql="timestamptz",
        iceberg="timestamptz",
        trino="timestamp(6) with time zone",
    ),
    _instants(
        False,
        6,
        ("10000-01-01T00:00:00", "0000-01-01T00:00:00"),
        postgresql="timestamp",
        iceberg="timestamp",
        trino="timestamp(6)",
    ),
    _instants(
        True, 9, ("2300-01-01T00:00:00Z", "1600-01-01T00:00:00Z"), clickhouse="DateTime64(9, 'UTC')"
    ),
    _instants(
        True,
        3,
        ("10000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        clickhouse="DateTime64(3, 'UTC')",
    ),
    _instants(
        True, 0, ("2200-01-01T00:00:00Z", "1965-01-01T00:00:00Z"), clickhouse="DateTime('UTC')"
    ),
    Kind(
        {PG: "jsonb"},
        _present(
            ({"a": [1, "x"]}, '{"a": [1, "x"]}'),
            ([], "[]"),
            ("x", '"x"'),
            (5, "5"),
            (1.50, "1.5"),
            (True, "true"),
        ),
    ),
    Kind(
        {PG: "interval"},
        (
            *_present(("1 day 02:00:00", "1 day 02:00:00"), ("P1DT2H", "1 day 02:00:00")),
            *_no("text", "x", ""),
            *_no("number", 5),
        ),
    ),
    Kind(
        {PG: "timetz"},
        (
            *_present(("12:00:00+02", "12:00:00+02"), ("24:00:00+02", "24:00:00+02")),
            *_no("text", "x", "now", "25:00:00+02"),
            *_no("number", 5),
        ),
    ),
    Kind(
        {PG: "inet", CH: "IPv4"},
        (
            Case("present", "10.0.0.1", "10.0.0.1", {PG: "10.0.0.1/32"}),
            Case("other", "::1", REJECTED, {PG: "::1/128"}),
            *_no("text", "300.1.1.1", "1.2.3", "x", ""),
            *_no("number", 5),
        ),
    ),
    Kind(
        {CH: "IPv6"},
        (*_present(("::1", "::1")), *_no("text", "nope", "", "1.2.3.4\n"), *_no("number", 5)),
    ),
    Kind({PG: "cidr"}, (*_present(("10.0.0.0/8", "10.0.0.0/8")), *_no("text", "10.0.0.1/8"))),
    Kind(
        {PG: "macaddr"},
        (*_present(("08:00:2b:01:02:03", "08:00:2b:01:02:03")), *_no("text", "x", "")),
    ),
    Kind(
        {PG: "bit(3)"}, (*_present(("101", "101")), *_no("text", "1", "102"), *_no("number", 101))
    ),
    Kind(
        {PG: "money"},
        (*_present((12.5, "$12.50"), ("$1", "$1.00")), *_no("text", "x"), *_no("other", True)),
    ),
    Kind(
        {PG: "tstzrange"},
        (
            *_present(
                ("[2026-01-01T10:00:00Z,)", '["2026-01-01 10:00:00+00",)'), ("empty", "empty")
            ),
            *_no("text", "[now,)", "x"),
        ),
    ),
    Kind(
        {PG: "mood", CH: "Enum8('ok' = 1, 'b\\'' = 2)"},
        (*_present(("ok", "ok")), *_no("text", "bad", ""), *_no("number", 1)),
    ),
    Kind(
        {PG: "short"},
        (
            *_present(("ab", "ab")),
            *_no("out of range", "abc"),
            Case("number", 1, REJECTED, {"postgresql array": "1"}),
        ),
    ),
    Kind({ICE: "fixed(2)"}, (*_present(("AP8=", "00ff")), *_no("out of range", "AA==", "AAAA"))),
    Kind({CH: "IntervalDay"}, (*_present((3, "3")), *_no("text", "x"), *_no("number", 1.5))),
    Kind(
        {CH: "BFloat16"},
        (*_present((0.5, "0.5")), *_no("out of range", 1e39), *_no("text", "x")),
    ),
)
