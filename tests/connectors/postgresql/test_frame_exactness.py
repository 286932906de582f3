"""DataFrames into tables of PostgreSQL: what its types would change is refused by its column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.postgresql.frames import write as frames_write
from dataflow_assets.connectors.postgresql.frames.frame_table import PostgresqlFrameTable
from dataflow_assets.connectors.postgresql.sink.encode_copy import textual
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.table_frames import Mode
from tests.frames import local_frame

DECIMAL, MOMENT = pa.decimal128(38, 10), pa.timestamp("us", "UTC")
LATE = datetime(2026, 1, 1, 23, 59, 59, 999999, UTC)
write = partial(frames_write.write, encode=textual)
Put = Callable[..., int]


@pytest.fixture
def link(postgresql: devservers.PostgreSQL, schema: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
        yield connection


@pytest.fixture
def put(postgresql: devservers.PostgreSQL, schema: str, engine: SparkSession) -> Put:
    """Writes rows of one column."""

    def written(name: str, kind: pa.DataType, *values: Any, mode: Mode = "append") -> int:
        given = local_frame([{name: v} for v in values], pa.schema([(name, kind)]), engine)
        return write(PostgresqlFrameTable(postgresql.dsn(), schema, "t"), given, mode, [name])

    return written


@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [
        ("numeric(6, 2)", DECIMAL, Decimal("1.009")),
        ("numeric(6, 2)", DECIMAL, Decimal(10000)),
        ("numeric(6, 2)", pa.float64(), 1.009),
        ("hundredths", DECIMAL, Decimal("1.009")),
        ("numeric(6, 2)[]", pa.list_(DECIMAL), [Decimal("1.00"), Decimal("1.009")]),
        ("timestamptz(0)", MOMENT, LATE),
        ("timestamp(3)", MOMENT, LATE),
        ("date", MOMENT, LATE),
        ("time(0)", pa.string(), "23:59:59.5"),
        ("interval(0)", pa.duration("us"), time.max.microsecond),
        ("varchar(3)", pa.string(), "abcd"),
        ("char(3)", pa.string(), "abcd"),
        ("varchar(3)", pa.string(), "abc "),
        ("real", pa.float64(), 1e300),
    ],
)
def test_what_a_column_would_change_is_refused_by_its_name(
    column: str, kind: pa.DataType, value: Any, link: psycopg.Connection, put: Put
) -> None:
    link.execute("CREATE DOMAIN hundredths AS numeric(6, 2)")
    link.execute(f'CREATE TABLE t ("My col" {column})'.encode())
    with pytest.raises(PermanentError, match=r"column My col.*(cast it|numeric field overflow)"):
        put("My col", kind, None, value)
    assert link.execute("SELECT FROM t").fetchall() == []


def test_what_a_narrower_column_holds_is_stored(link: psycopg.Connection, put: Put) -> None:
    link.execute("CREATE TABLE t (v numeric(6, 2))")
    assert put("v", DECIMAL, Decimal("1.0100000000"), None, Decimal("-9999.99")) == 3
    stored = [value for (value,) in link.execute("SELECT v::text FROM t")]
    assert stored == ["1.01", None, "-9999.99"]


def test_keys_that_would_become_one_are_refused(link: psycopg.Connection, put: Put) -> None:
    link.execute("CREATE TABLE t (v numeric(6, 2) PRIMARY KEY)")
    with pytest.raises(PermanentError, match=r"would change 1\.001"):
        put("v", DECIMAL, Decimal("1.0010000000"), Decimal("1.0040000000"), mode="upsert")
    link.execute("ALTER TABLE t ALTER v TYPE real")
    with pytest.raises(PermanentError, match="several rows of one key"):
        put("v", pa.float64(), 0.1, 0.1 + 1e-12, mode="upsert")
    assert link.execute("SELECT FROM t").fetchall() == []


def test_a_frame_may_have_any_name_of_a_column(link: psycopg.Connection, put: Put) -> None:
    assert put("_attempt", pa.string(), "x") == 1
    assert link.execute("SELECT _attempt FROM t").fetchall() == [("x",)]
