"""Whole Trino tables as DataFrames: what the IO manager `trino` writes and reads."""

from __future__ import annotations

import decimal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import devservers
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.frames.read import describe, read
from dataflow_assets.connectors.trino.frames.write import WRITES, write
from dataflow_assets.connectors.trino.table import stage
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.table_frames import LEFT_SECONDS
from tests.connectors.trino.driver import execute
from tests.frames import local_frame

pytestmark = pytest.mark.heavy

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
    ]
)
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


def given(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "id": i,
            "name": f"n,{i}\n'x'\"y\" ü" if i else None,
            "price": decimal.Decimal("1.50"),
            "at": AT,
            "day": DAY,
            "tags": ["a", "b'"],
        }
        for i in range(start, start + count)
    ]


def rows(
    engine: SparkSession, count: int, start: int = 0, columns: pa.Schema = COLUMNS
) -> DataFrame:
    return local_frame(given(count, start), columns, engine)


def test_a_table_is_made_overwritten_appended_to_and_upserted(
    things: TrinoSink, engine: SparkSession, ids: Callable[[], list[int]], held: ExitStack
) -> None:
    assert write(things, rows(engine, 5), "append", ()) == 5
    assert ids() == [0, 1, 2, 3, 4]
    write(things, rows(engine, 3), "overwrite", ())
    assert ids() == [0, 1, 2]
    write(things, rows(engine, 2, start=1), "append", ())
    assert ids() == [0, 1, 1, 2, 2]
    write(things, rows(engine, 0), "overwrite", ())
    assert ids() == []
    write(things, rows(engine, 3), "append", ())
    write(things, rows(engine, 3, start=2, columns=COLUMNS.remove(1)), "upsert", ("id",))
    assert ids() == [0, 1, 2, 3, 4]
    stored = read(things, engine, None, held).toArrow().to_pylist()
    found = {row["id"]: row for row in stored}
    assert found[2]["name"] == "n,2\n'x'\"y\" ü", "an upsert leaves other columns alone"
    assert found[4]["name"] is None
    assert found[1]["price"] == decimal.Decimal("1.50")
    assert found[1]["at"].astimezone(UTC) == AT
    assert (found[1]["day"], found[1]["tags"]) == (DAY, ["a", "b'"])
    schema, count = describe(things)
    assert count == 5
    assert schema.names == ["at", "day", "id", "name", "price", "tags"], "a made table is sorted"


def test_chosen_columns_are_read_and_unknown_ones_are_refused(
    things: TrinoSink, engine: SparkSession, held: ExitStack
) -> None:
    write(things, rows(engine, 2), "append", ())
    some = read(things, engine, ["day", "id"], held)
    assert some.columns == ["day", "id"]
    assert sorted(some.toArrow().column("id").to_pylist()) == [0, 1]
    with pytest.raises(PermanentError, match="has no column gone; it has at, day, id, name"):
        read(things, engine, ["gone"], held)
    extra = rows(engine, 1, columns=COLUMNS.set(1, pa.field("other", pa.string())))
    with pytest.raises(PermanentError, match="other"):
        write(things, extra, "append", ())


def test_nothing_waits_beside_the_table_afterwards(
    things: TrinoSink, engine: SparkSession, trino: devservers.Trino, trino_schema: str
) -> None:
    """Nor what a write that was killed has left, after a week."""
    killed = stage.name(WRITES, int(time.time()) - LEFT_SECONDS - 60, "0123abcd")
    execute(trino, f"CREATE TABLE lake.{trino_schema}.{killed} (i integer)")
    write(things, rows(engine, 2), "append", ())
    assert execute(trino, f"SHOW TABLES FROM lake.{trino_schema}") == [["things"]]


@pytest.mark.full
def test_frames_of_spark_are_stored_and_read(
    things: TrinoSink, spark: SparkSession, held: ExitStack
) -> None:
    """As those of this process, in the tasks of Spark."""
    made = spark.createDataFrame(pa.Table.from_pylist(given(5), COLUMNS)).repartition(2)
    assert write(things, made, "append", ()) == 5
    found = read(things, spark, COLUMNS.names, held).toArrow().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == given(5)
