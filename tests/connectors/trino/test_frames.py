"""Whole Trino tables as DataFrames: what the IO manager `trino` writes and reads."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

import devservers
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.frames.read import describe, read
from dataflow_assets.connectors.trino.frames.write import write
from dataflow_assets.errors import PermanentError
from tests.connectors.trino.driver import execute

pytestmark = pytest.mark.heavy

DDL = "id bigint, name string, price decimal(10,2), at timestamp, day date, tags array<string>"
AT, DAY = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC), date(2026, 1, 31)


@pytest.fixture
def things(trino: devservers.Trino, trino_schema: str) -> TrinoSink:
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "things"}
    return TrinoSink.model_validate(config)


@pytest.fixture
def ids(trino: devservers.Trino, trino_schema: str) -> Callable[[], list[int]]:
    query = f"SELECT id FROM lake.{trino_schema}.things ORDER BY id"
    return lambda: [row[0] for row in execute(trino, query)]


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def rows(spark: SparkSession, count: int, start: int = 0) -> DataFrame:
    given = [
        (i, f"n,{i}\n'x'\"y\" ü" if i else None, decimal.Decimal("1.50"), AT, DAY, ["a", "b'"])
        for i in range(start, start + count)
    ]
    return spark.createDataFrame(given, DDL).repartition(2)


def test_a_table_is_made_overwritten_appended_to_and_upserted(
    things: TrinoSink, spark: SparkSession, ids: Callable[[], list[int]], held: ExitStack
) -> None:
    assert write(things, rows(spark, 5), "append", ()) == 5
    assert ids() == [0, 1, 2, 3, 4]
    write(things, rows(spark, 3), "overwrite", ())
    assert ids() == [0, 1, 2]
    write(things, rows(spark, 2, start=1), "append", ())
    assert ids() == [0, 1, 1, 2, 2]
    write(things, rows(spark, 0), "overwrite", ())
    assert ids() == []
    write(things, rows(spark, 3), "append", ())
    write(things, rows(spark, 3, start=2).drop("name"), "upsert", ("id",))
    assert ids() == [0, 1, 2, 3, 4]
    found = {row["id"]: row for row in read(things, spark, None, held).collect()}
    assert found[2]["name"] == "n,2\n'x'\"y\" ü", "an upsert leaves other columns alone"
    assert found[4]["name"] is None
    assert found[1]["price"] == decimal.Decimal("1.50")
    assert found[1]["at"].astimezone(UTC) == AT
    assert (found[1]["day"], found[1]["tags"]) == (DAY, ["a", "b'"])
    schema, count = describe(things)
    assert count == 5
    assert schema.names == ["at", "day", "id", "name", "price", "tags"], "a made table is sorted"


def test_chosen_columns_are_read_and_unknown_ones_are_refused(
    things: TrinoSink, spark: SparkSession, held: ExitStack
) -> None:
    write(things, rows(spark, 2), "append", ())
    some = read(things, spark, ["day", "id"], held)
    assert some.columns == ["day", "id"]
    assert sorted(row["id"] for row in some.collect()) == [0, 1]
    with pytest.raises(PermanentError, match="has no column gone; it has at, day, id, name"):
        read(things, spark, ["gone"], held)
    extra = rows(spark, 1).withColumnRenamed("name", "other")
    with pytest.raises(PermanentError, match="other"):
        write(things, extra, "append", ())


def test_nothing_waits_beside_the_table_afterwards(
    things: TrinoSink, spark: SparkSession, trino: devservers.Trino, trino_schema: str
) -> None:
    write(things, rows(spark, 2), "append", ())
    assert execute(trino, f"SHOW TABLES FROM lake.{trino_schema}") == [["things"]]
