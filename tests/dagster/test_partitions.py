"""Assets with partitions: a run replaces the rows of its partitions, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.clickhouse import ClickhouseSink
from dataflow_assets.connectors.memory import Store
from dataflow_assets.connectors.postgresql.sink.sink import PostgresqlSink
from tests.dagster.partitioned import Runs, frame_asset
from tests.dagster.test_io_managers import lake_sink

UTC = ZoneInfo("UTC")
LETTERS = dg.StaticPartitionsDefinition(["a", "b", "c"])
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01")
TEXTS = pa.schema([("day", pa.string()), ("i", pa.int32())])
DATES = pa.schema([("day", pa.date32()), ("i", pa.int32())])
TIMES = pa.schema([("at", pa.timestamp("us", "UTC")), ("i", pa.int32())])
SYSTEMS = ("postgresql", "clickhouse", "iceberg")


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(request: pytest.FixtureRequest, system: str) -> str:
    """The schema, database or namespace of the test."""
    names = {"postgresql": "schema", "clickhouse": "database", "iceberg": "namespace"}
    return str(request.getfixturevalue(names[system]))


@pytest.fixture
def runs(
    request: pytest.FixtureRequest,
    system: str,
    place: str,
    store: Store,
    engine: SparkSession,
    instance: dg.DagsterInstance,
) -> Runs:
    if system == "iceberg":
        lake: devservers.SeaweedFS = request.getfixturevalue("seaweedfs")
        return Runs(store, lake_sink(lake, place), engine, instance)
    server: Any = request.getfixturevalue(system)
    if system == "clickhouse":
        given = {"connectionString": server.dsn(place), "table": "orders"}
        return Runs(store, ClickhouseSink.model_validate(given), engine, instance)
    given = {"connectionString": server.dsn(), "table": f"{place}.orders"}
    return Runs(store, PostgresqlSink.model_validate(given), engine, instance)


@pytest.fixture
def key(system: str, place: str) -> list[str]:
    return [system, "here", place, "daily"]


def rows(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    """The rows in order."""
    return sorted(tuple(row[name] for name in names) for row in table.to_pylist())


def two_rows(value: Callable[[str], Any], column: str = "day") -> Any:
    """Two rows for each partition of a run."""

    def made(context: dg.AssetExecutionContext) -> list[Mapping[str, Any]]:
        return [{column: value(k), "i": i} for k in context.partition_keys for i in range(2)]

    return made


def test_each_run_replaces_the_rows_of_its_partition(runs: Runs, key: list[str]) -> None:
    count = [2]

    def made(context: dg.AssetExecutionContext) -> list[Mapping[str, Any]]:
        return [{"day": context.partition_key, "i": i} for i in range(count[0])]

    daily = frame_asset(key, TEXTS, made, LETTERS, partition_expr="day")
    for letter in "abc":
        assert runs.write(daily, letter) == ""
    every = [(letter, i) for letter in "abc" for i in range(2)]
    assert rows(runs.read(daily), "day", "i") == every
    count[0] = 1
    assert runs.write(daily, "b") == ""
    assert rows(runs.read(daily), "day", "i") == [x for x in every if x != ("b", 1)]
    count[0] = 0
    assert runs.write(daily, "c") == ""
    assert rows(runs.read(daily), "day", "i") == [("a", 0), ("a", 1), ("b", 0)]


@pytest.mark.parametrize("kinds", [DATES, TIMES, TEXTS], ids=["dates", "times", "keys"])
def test_a_backfill_of_30_days(runs: Runs, key: list[str], kinds: pa.Schema) -> None:
    """In one run, then each day in a run of its own, and one of them once more."""
    column = kinds.names[0]

    def value(text: str) -> Any:
        day = date.fromisoformat(text)
        last = datetime(day.year, day.month, day.day, 23, 59, 59, 999_999, tzinfo=UTC)
        return {"string": text, "date32[day]": day}.get(str(kinds.types[0]), last)

    keys = DAYS.get_partition_keys()[:30]
    daily = frame_asset(key, kinds, two_rows(value, column), DAYS, partition_expr=column)
    every = [(value(day), i) for day in keys for i in range(2)]
    assert runs.write(daily, keys[0], keys[-1]) == ""
    assert rows(runs.read(daily), column, "i") == every
    for day in keys[:3]:
        assert runs.write(daily, day) == ""
    assert rows(runs.read(daily), column, "i") == every
