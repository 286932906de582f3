"""DataFrames into tables of ClickHouse: what its types would change is refused by its column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.clickhouse.client import connect, query_rows
from dataflow_assets.connectors.clickhouse.frames.frame_table import ClickhouseFrameTable
from dataflow_assets.connectors.clickhouse.frames.write import write
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.table_frames import Mode
from tests.frames import local_frame

DECIMAL, MOMENT = pa.decimal128(38, 10), pa.timestamp("us", "UTC")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATE = NOON + timedelta(microseconds=1)
Put = Callable[..., int]


@pytest.fixture
def server(clickhouse: devservers.ClickHouse, database: str) -> Iterator[Client]:
    with closing(connect(clickhouse.dsn(database), "tests")) as client:
        yield client


@pytest.fixture
def put(clickhouse: devservers.ClickHouse, database: str, engine: SparkSession) -> Put:
    """Writes rows of one column."""

    def written(name: str, kind: pa.DataType, *values: Any, mode: Mode = "append") -> int:
        given = local_frame([{name: v} for v in values], pa.schema([(name, kind)]), engine)
        return write(
            ClickhouseFrameTable(clickhouse.dsn(database), database, "t"), given, mode, [name]
        )

    return written


@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [
        ("Decimal(10, 2)", DECIMAL, Decimal("1.009")),
        ("Decimal(10, 2)", DECIMAL, Decimal(12345678901)),
        ("Decimal(10, 2)", pa.float64(), 1.009),
        ("DateTime", MOMENT, LATE),
        ("DateTime", MOMENT, datetime(2300, 1, 1, tzinfo=UTC)),
        ("DateTime", MOMENT, datetime(1960, 1, 1, tzinfo=UTC)),
        ("DateTime64(3, 'Europe/Berlin')", MOMENT, LATE),
        ("Array(DateTime)", pa.list_(MOMENT), [NOON, LATE]),
        ("Array(DateTime)", pa.list_(MOMENT), [datetime(2300, 1, 1, tzinfo=UTC)]),
        ("Map(String, DateTime)", pa.map_(pa.string(), MOMENT), [("k", LATE)]),
        ("Tuple(a DateTime64(5))", pa.struct([("a", MOMENT)]), {"a": LATE}),
        ("Date", pa.date32(), date(1900, 1, 1)),
        ("Date", pa.date32(), date(2300, 1, 1)),
        ("Date32", MOMENT, NOON),
        ("Float32", pa.float64(), 1e300),
        ("Int32", pa.int64(), 2**31),
    ],
)
def test_what_a_column_would_change_is_refused_by_its_name(
    column: str, kind: pa.DataType, value: Any, server: Client, put: Put
) -> None:
    server.command(f"CREATE TABLE t (`My col` {column}) ENGINE = MergeTree ORDER BY tuple()")
    with pytest.raises(PermanentError, match=r"column My col: .*cast it in the frame"):
        put("My col", kind, value)
    assert query_rows(server, "SELECT * FROM t") == []


def test_moments_and_fractions_that_are_kept_are_stored(server: Client, put: Put) -> None:
    server.command("CREATE TABLE t (v DateTime64(3, 'UTC')) ENGINE = MergeTree ORDER BY tuple()")
    assert put("v", MOMENT, NOON, NOON - timedelta(days=30_000, milliseconds=1)) == 2
    server.command("CREATE TABLE f (v Float32) ENGINE = MergeTree ORDER BY tuple()")
    server.command("EXCHANGE TABLES t AND f")
    assert put("v", pa.float64(), 0.1) == 1
    assert query_rows(server, "SELECT toString(v) FROM t") == [("0.1",)]
    moments = [text for (text,) in query_rows(server, "SELECT toString(v) FROM f ORDER BY v")]
    assert moments == ["1943-11-13 11:59:59.999", "2026-01-01 12:00:00.000"]


@pytest.mark.parametrize(
    ("column", "kind", "values", "reason"),
    [
        ("Decimal(10, 2)", DECIMAL, [Decimal("1.001"), Decimal("1.004")], "column k: "),
        ("DateTime", MOMENT, [NOON, LATE], "column k: "),
        ("Float32", pa.float64(), [0.1, 0.1 + 1e-12], "several rows of one key"),
    ],
)
def test_keys_that_would_become_one_are_refused(
    column: str, kind: pa.DataType, values: list[Any], reason: str, server: Client, put: Put
) -> None:
    server.command(f"CREATE TABLE t (k {column}) ENGINE = ReplacingMergeTree ORDER BY k")
    with pytest.raises(PermanentError, match=reason):
        put("k", kind, *values, mode="upsert")
    assert query_rows(server, "SELECT * FROM t") == []


def test_a_frame_may_have_any_name_of_a_column(server: Client, put: Put) -> None:
    assert put("_attempt", pa.string(), "x") == 1
    assert query_rows(server, "SELECT _attempt FROM t") == [("x",)]
