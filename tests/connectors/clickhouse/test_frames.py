"""Whole tables of ClickHouse as DataFrames: bytes, partitions of the table, and kept columns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.clickhouse.client import connect, query_rows
from dataflow_assets.connectors.clickhouse.frames import partition_key
from dataflow_assets.connectors.clickhouse.frames.conditions import condition
from dataflow_assets.connectors.clickhouse.frames.frame_table import ClickhouseFrameTable
from dataflow_assets.connectors.clickhouse.frames.partition_key import PartitionKey
from dataflow_assets.connectors.clickhouse.frames.read import read
from dataflow_assets.connectors.clickhouse.frames.write import write
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.table_frames import LEFT_SECONDS, STAGES
from dataflow_assets.sdk.table_partitions import Dimension, Partitions, Window
from dataflow_assets.spark.errors import task_failure
from tests.frames import local_frame

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
UNITS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}


@pytest.fixture
def server(clickhouse: devservers.ClickHouse, database: str) -> Iterator[Client]:
    with closing(connect(clickhouse.dsn(database), "tests")) as client:
        yield client


@pytest.fixture
def table(clickhouse: devservers.ClickHouse, database: str) -> ClickhouseFrameTable:
    return ClickhouseFrameTable(clickhouse.dsn(database), database, "t")


def rows(table: ClickhouseFrameTable, engine: SparkSession) -> list[dict[str, Any]]:
    with ExitStack() as held:
        found: list[dict[str, Any]] = read(table, engine, None, held).toArrow().to_pylist()
    return found


def windows(start: datetime, length: timedelta) -> Partitions:
    """A partition of time, by the column `at`."""
    window = Window(start, start + length)
    return Partitions(((Dimension("at", (start.isoformat(),), (window,)),),))


def test_moments_are_read_in_microseconds_wherever_they_are(
    table: ClickhouseFrameTable, server: Client, engine: SparkSession
) -> None:
    """All that a DataFrame has."""
    kind, text = "DateTime64(9, 'UTC')", "'2026-01-31 10:00:00.123456789'"
    server.command(
        f"CREATE TABLE t (p {kind}, a Array({kind}), n Array(Nullable({kind})), s Tuple(x {kind})) "
        "ENGINE = MergeTree ORDER BY tuple()"
    )
    server.command(f"INSERT INTO t VALUES ({text}, [{text}], [{text}, NULL], ({text}))")
    at = datetime(2026, 1, 31, 10, 0, 0, 123456, UTC)
    assert rows(table, engine) == [{"p": at, "a": [at], "n": [at, None], "s": {"x": at}}]


def test_bytes_come_back_and_text_that_is_none_is_refused(
    table: ClickhouseFrameTable, server: Client, engine: SparkSession
) -> None:
    schema = pa.schema([("b", pa.binary()), ("s", pa.string())])
    given: list[Mapping[str, Any]] = [{"b": b"\x00\xff", "s": "ü"}, {"b": None, "s": None}]
    for _ in range(2):  # the second time the table is exchanged for one like it
        write(table, local_frame(given, schema, engine), "overwrite", ())
        assert sorted(rows(table, engine), key=lambda row: row["b"] is None) == given
    server.command("INSERT INTO t (s) VALUES (unhex('00ff'))")
    with pytest.raises(PySparkException, match=r"column s of .* holds bytes") as caught:
        rows(table, engine)
    error = task_failure(caught.value)
    assert isinstance(error, PermanentError)
    server.command(str(error).partition("it is read as bytes: ")[2])
    assert {row["s"] for row in rows(table, engine)} == {"ü".encode(), None, b"\x00\xff"}


def test_an_overwrite_says_that_views_see_nothing_of_it(
    table: ClickhouseFrameTable,
    server: Client,
    engine: SparkSession,
    caplog: pytest.LogCaptureFixture,
) -> None:
    frame = local_frame([{"i": 1}], pa.schema([("i", pa.int32())]), engine)
    write(table, frame, "overwrite", ())
    server.command("CREATE MATERIALIZED VIEW seen ENGINE = Log AS SELECT i FROM t")
    write(table, frame, "append", ())
    assert "materialized views" not in caplog.text
    write(table, frame, "overwrite", ())
    assert "materialized views of the table keep what they have made" in caplog.text
    assert query_rows(server, "SELECT i FROM seen") == [(1,)]


def test_what_a_killed_write_has_left_is_dropped_after_a_week(
    table: ClickhouseFrameTable, server: Client, engine: SparkSession
) -> None:
    week_ago, now = int(time.time()) - LEFT_SECONDS - 60, int(time.time())
    old, new = f"{STAGES}{week_ago}_0123abcd", f"{STAGES}{now}_0123abcd"
    for name in (old, f"{old}_rows", new, f"{STAGES}mine"):
        server.command(f"CREATE TABLE {name} (i Int32) ENGINE = MergeTree ORDER BY i")
    write(table, local_frame([{"i": 1}], pa.schema([("i", pa.int32())]), engine), "append", ())
    assert {name for (name,) in query_rows(server, "SHOW TABLES")} == {"t", new, f"{STAGES}mine"}


def test_an_upsert_leaves_the_columns_alone_that_a_frame_lacks(
    table: ClickhouseFrameTable, server: Client, engine: SparkSession
) -> None:
    server.command(
        "CREATE TABLE t (k Int64, a String, b String DEFAULT 'new', n Nullable(Int32), "
        "m String MATERIALIZED a) ENGINE = ReplacingMergeTree ORDER BY k"
    )
    server.command("INSERT INTO t (k, a, b, n) VALUES (1, 'a', 'b', 5), (2, 'a', 'b', 6)")
    schema = pa.schema([("k", pa.int64()), ("a", pa.string())])

    def put(given: Sequence[Mapping[str, Any]]) -> None:
        write(table, local_frame(given, schema, engine), "upsert", ["k"])

    put([{"k": 1, "a": "x"}, {"k": 3, "a": "y"}])
    found = [(row["k"], row["a"], row["b"], row["n"]) for row in rows(table, engine)]
    assert sorted(found) == [(1, "x", "b", 5), (2, "a", "b", 6), (3, "y", "new", None)]
    with pytest.raises(PermanentError, match=r"null in the key \(k\)"):
        put([{"k": None, "a": "x"}])
    assert len(rows(table, engine)) == 3


@pytest.mark.parametrize(
    ("key", "start", "unit", "separate"),
    [
        ("toDate(at)", MIDNIGHT, "day", True),
        ("at", MIDNIGHT, "day", False),
        ("tuple()", MIDNIGHT, "day", False),
        ("toYYYYMM(at)", MIDNIGHT, "day", False),
        ("toStartOfHour(at)", MIDNIGHT, "day", False),
        ("toStartOfHour(at)", datetime(2026, 1, 1, 5, tzinfo=UTC), "hour", True),
        ("toStartOfInterval(at, toIntervalHour(6))", MIDNIGHT, "hour", False),
        ("toMonday(at)", datetime(2026, 1, 5, tzinfo=UTC), "week", True),
        ("toMonday(at)", datetime(2026, 1, 4, tzinfo=UTC), "week", False),
        ("toDate(at)", datetime(2026, 1, 1, tzinfo=BERLIN), "day", False),
        ("toDate(at, 'Europe/Berlin')", datetime(2026, 1, 1, tzinfo=BERLIN), "day", True),
        ("(toDate(at), i)", MIDNIGHT, "day", False),
        ("toDayOfWeek(at)", MIDNIGHT, "day", False),
    ],
)
def test_only_a_table_whose_partitions_are_those_of_the_asset_is_overwritten(
    key: str,
    start: datetime,
    unit: str,
    separate: bool,
    table: ClickhouseFrameTable,
    server: Client,
    engine: SparkSession,
) -> None:
    server.command(
        "CREATE TABLE t (at DateTime64(6, 'UTC'), i Int32) ENGINE = MergeTree "
        f"PARTITION BY {key} ORDER BY i"
    )
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("i", pa.int32())])
    frame = local_frame([{"at": start, "i": 1}], schema, engine)
    if separate:
        for _ in range(2):
            write(table, frame, "overwrite", (), windows(start, UNITS[unit]))
        assert rows(table, engine) == [{"at": start, "i": 1}]
        return
    with pytest.raises(PermanentError, match="make the table with PARTITION BY"):
        write(table, frame, "overwrite", (), windows(start, UNITS[unit]))
    assert rows(table, engine) == []


@pytest.mark.parametrize(
    ("kind", "start", "hours", "made"),
    [
        ("Date32", "2026-01-01", 24, "(`at`)"),
        ("Date32", "2026-01-01", 31 * 24, "(toStartOfMonth(`at`))"),
        ("DateTime", "2026-01-01", 365 * 24, "(toStartOfYear(`at`))"),
        ("DateTime", "2026-01-04", 7 * 24, "(toStartOfWeek(`at`, 0))"),
        ("DateTime64(3)", "2026-01-01T05", 1, "(toStartOfHour(`at`))"),
        ("String", "2026-01-01", 24, "(`at`)"),
    ],
)
def test_a_table_is_partitioned_as_the_asset(
    kind: str, start: str, hours: int, made: str, server: Client
) -> None:
    first = datetime.fromisoformat(start).replace(tzinfo=UTC)
    partitions = windows(first, timedelta(hours=hours))
    assert PartitionKey(server, {"at": kind}).expression(partitions) == made


def test_one_run_may_have_more_windows_than_a_query_takes(
    server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def days(*lengths: timedelta) -> Partitions:
        each = (windows(MIDNIGHT + n * UNITS["day"], one) for n, one in enumerate(lengths))
        return Partitions(tuple(one.products[0] for one in each))

    key = PartitionKey(server, {"at": "DateTime"})
    key.check("t", days(*[UNITS["day"]] * 1500), "toDate(at)")
    monkeypatch.setattr(partition_key, "_WINDOWS", 1)
    with pytest.raises(PermanentError, match="none of ClickHouse's usual functions"):
        key.check("t", days(UNITS["day"], UNITS["hour"] / 7), "toDate(at)")


def test_one_run_may_have_some_thousand_keys(server: Client) -> None:
    keys = Partitions(((Dimension("k", tuple(f"key-{n:05}" for n in range(15_000))),),))
    found = condition(keys, "t", {"k": "String"})
    names = "SELECT arrayJoin(['key-00007', 'key-14999', 'key-15000', NULL]) AS k"
    query = f"SELECT countIf(c), countIf(NOT c), count(c) FROM (SELECT {found} AS c FROM ({names}))"
    assert query_rows(server, query) == [(2, 1, 3)]


def test_parts_of_a_day_are_no_partitions_of_dates(
    table: ClickhouseFrameTable, engine: SparkSession
) -> None:
    schema = pa.schema([("at", pa.date32())])
    frame = local_frame([{"at": date(2026, 1, 1)}], schema, engine)
    five = windows(MIDNIGHT + timedelta(hours=5), UNITS["hour"])
    with pytest.raises(PermanentError, match=r"at holds dates, and a partition begins at .* 05"):
        write(table, frame, "overwrite", (), five)


def test_a_day_that_is_replaced_takes_no_far_day_with_it(
    table: ClickhouseFrameTable, engine: SparkSession
) -> None:
    """`toDate` counts to 2149, and begins with 1970 then."""
    kinds = pa.schema([pa.field("at", pa.timestamp("us", "UTC"), nullable=False)])
    day, far = datetime(2023, 12, 31, tzinfo=UTC), datetime(2203, 6, 7, tzinfo=UTC)
    one = windows(day, UNITS["day"])
    write(table, local_frame([{"at": day}], kinds, engine), "overwrite", (), one)
    write(table, local_frame([{"at": far}], kinds, engine), "append", ())
    write(table, local_frame([], kinds, engine), "overwrite", (), one)
    assert rows(table, engine) == [{"at": far}]
