"""One table of columns of frames, the columns they are written to, and what becomes of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.matrix.types import CH, DAY, ICE, PG, TRINO, UUID


@dataclass(frozen=True)
class Pair:
    """A type of Spark's into a type of a table, by system."""

    given: pa.DataType
    into: Mapping[str, str]
    fits: tuple[tuple[Any, str], ...] = ()
    """Values, and the text of what is stored."""
    unfit: tuple[Any, ...] = ()


NAN, INF = float("nan"), float("inf")
NOON = datetime(2020, 2, 29, 12, 0, 0, 123456, UTC)
BARE = NOON.replace(tzinfo=None)
MIDNIGHT = datetime(2020, 2, 29, tzinfo=UTC)
INT = {PG: "integer", CH: "Int32", ICE: "int", TRINO: "integer"}
LONG = {PG: "bigint", CH: "Int64", ICE: "long", TRINO: "bigint"}
REAL = {PG: "real", CH: "Float32", ICE: "float", TRINO: "real"}
DOUBLE = {PG: "double precision", CH: "Float64", ICE: "double", TRINO: "double"}
BOOLEAN = {PG: "boolean", CH: "Bool", ICE: "boolean", TRINO: "boolean"}
DECIMAL = {PG: "numeric(5, 2)", CH: "Decimal(5, 2)", ICE: "decimal(5,2)", TRINO: "decimal(5, 2)"}
TEXT = {PG: "text", CH: "String", ICE: "string", TRINO: "varchar"}
BYTES = {PG: "bytea", ICE: "binary", TRINO: "varbinary"}
UUIDS = {PG: "uuid", CH: "UUID", ICE: "uuid", TRINO: "uuid"}
DATE = {PG: "date", CH: "Date32", ICE: "date", TRINO: "date"}
TIME = {PG: "time", CH: "Time64(6)", ICE: "time", TRINO: "time(6)"}
AWARE = {
    PG: "timestamptz",
    CH: "DateTime64(6, 'UTC')",
    ICE: "timestamptz",
    TRINO: "timestamp(6) with time zone",
}
NAIVE = {PG: "timestamp", ICE: "timestamp", TRINO: "timestamp(6)"}
ZONED = pa.timestamp("us", "UTC")
SHORT = {PG: "smallint", CH: "Int16"}


PAIRS = (
    Pair(pa.bool_(), BOOLEAN, ((True, "true"), (False, "false"))),
    Pair(pa.bool_(), INT, (), (True,)),
    Pair(pa.int64(), SHORT, ((-(2**15), "-32768"),), (2**15, -(2**63))),
    Pair(pa.int64(), INT, ((2**31 - 1, "2147483647"),), (2**31,)),
    Pair(pa.int64(), LONG, ((-(2**63), str(-(2**63))),)),
    Pair(pa.int64(), BOOLEAN, (), (0, 1, 5)),
    Pair(pa.int64(), REAL, ((7, "7.0"),), (16777217,)),
    Pair(pa.int64(), DOUBLE, ((2**53, "9007199254740992.0"),), (2**53 + 1,)),
    Pair(pa.int64(), DECIMAL, ((999, "999"),), (1000,)),
    Pair(pa.int64(), DATE, (), (5,)),
    Pair(pa.int64(), AWARE, (), (5,)),
    Pair(pa.int64(), TIME, (), (5,)),
    Pair(pa.float64(), INT, ((7.0, "7"),), (1.5, 1e10, NAN, INF)),
    Pair(pa.float64(), LONG, ((-7.0, "-7"),), (1e19, 0.5)),
    Pair(pa.float64(), REAL, ((0.1, "0.1"), (NAN, "nan"), (-INF, "-inf")), (1e39,)),
    Pair(
        pa.float64(),
        DOUBLE,
        ((0.1, "0.1"), (-0.0, "-0.0"), (5e-324, "5e-324"), (NAN, "nan"), (INF, "inf")),
    ),
    Pair(pa.float64(), DECIMAL, ((1.25, "1.25"),), (1e10, INF)),
    Pair(
        pa.decimal128(38, 10),
        DECIMAL,
        ((Decimal("1.25"), "1.25"),),
        (Decimal(1000), Decimal("1.005")),
    ),
    Pair(pa.float64(), DECIMAL, (), (1.005,)),
    Pair(pa.string(), DECIMAL, (), ("1.005",)),
    Pair(pa.decimal128(38, 0), LONG, ((Decimal(-(2**63)), str(-(2**63))),), (Decimal(2**63),)),
    Pair(pa.decimal128(38, 2), INT, ((Decimal("7.00"), "7"),), (Decimal("1.5"),)),
    Pair(pa.decimal128(38, 2), DOUBLE, ((Decimal("0.10"), "0.1"),)),
    Pair(pa.string(), TEXT, (("ü\n\"'\\", "ü\n\"'\\"), ("", ""), ("NULL", "NULL"))),
    Pair(pa.string(), INT, (("-7", "-7"),), ("x", "", "1.5", str(2**31))),
    Pair(pa.string(), DECIMAL, (("1.25", "1.25"),), ("x", "1000")),
    Pair(pa.string(), UUIDS, ((UUID, UUID),), ("x", "")),
    Pair(pa.string(), DATE, ((DAY, DAY),), ("x", "now", "01/02/2026")),
    Pair(pa.string(), TIME, (("10:00:00.5", "10:00:00.5"),), ("x", "10:60:00")),
    Pair(
        pa.string(),
        AWARE,
        (("2020-02-29T17:00:00+05:00", "2020-02-29 12:00:00"),),
        ("x", "now", "2020-02-29T12:00:00"),
    ),
    Pair(pa.string(), BOOLEAN, (), ("x", "t", "1", "true")),
    Pair(pa.binary(), BYTES, ((b"\x00\xff", "00ff"), (b"", ""))),
    Pair(
        pa.date32(),
        DATE,
        ((date(1, 1, 1), "0001-01-01"), (date(9999, 12, 31), "9999-12-31")),
    ),
    Pair(
        pa.date32(), {CH: "Date"}, ((MIDNIGHT.date(), DAY),), (date(1969, 12, 31), date(2149, 6, 7))
    ),
    Pair(pa.date32(), AWARE, ((MIDNIGHT.date(), f"{DAY} 00:00:00"),)),
    Pair(ZONED, AWARE, ((NOON, f"{DAY} 12:00:00.123456"),)),
    Pair(
        ZONED,
        {name: AWARE[name] for name in (PG, ICE, TRINO)},
        (
            (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01 00:00:00"),
            (datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), "9999-12-31 23:59:59.999999"),
        ),
    ),
    Pair(ZONED, NAIVE, ((NOON, f"{DAY} 12:00:00.123456"),)),
    Pair(pa.timestamp("us"), NAIVE, ((BARE, f"{DAY} 12:00:00.123456"),)),
    Pair(pa.timestamp("us"), AWARE, ((BARE, f"{DAY} 12:00:00.123456"),)),
    Pair(ZONED, DATE, ((MIDNIGHT, DAY),), (NOON,)),
    Pair(pa.timestamp("us"), DATE, (), (BARE,)),
    Pair(
        ZONED,
        {CH: "DateTime('UTC')"},
        ((MIDNIGHT, f"{DAY} 00:00:00"),),
        (NOON, datetime(1965, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)),
    ),
    Pair(
        ZONED,
        {CH: "DateTime64(3, 'UTC')"},
        ((NOON.replace(microsecond=123000), f"{DAY} 12:00:00.123"),),
        (NOON,),
    ),
)
