"""Every name that ClickHouse takes is one that a manifest can give: names are always quoted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import clickhouse_connect
import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.clickhouse import ClickhouseSink, ClickhouseSource
from dataflow_assets.connectors.clickhouse.client import quote
from dataflow_assets.connectors.clickhouse.frames.frame_table import ClickhouseFrameTable
from dataflow_assets.connectors.clickhouse.frames.read import read
from dataflow_assets.connectors.clickhouse.frames.write import write
from dataflow_assets.connectors.clickhouse.options import ClickhouseConnection
from dataflow_assets.contracts import DELETE, OP, Limit, PartSlice
from tests.connectors.clickhouse.driver import TARGET, start, store

DATABASE = """1 it's "ß" {x:String}"""
NASTY = "`t` \\n, (--.%"
KEY, PRICE, OTHER = "1 Order.No, (a", "Größe \"%\" 'x' {y}", "`user`"


@pytest.fixture
def client(clickhouse: devservers.ClickHouse) -> Iterator[Client]:
    with closing(clickhouse_connect.get_client(dsn=clickhouse.dsn())) as found:
        yield found


@pytest.fixture
def named(client: Client) -> Iterator[str]:
    """A database of such a name; dropped after the test."""
    name = f"{DATABASE}{uuid4().hex[:6]}"
    client.command(f"CREATE DATABASE {quote(name)}")
    yield name
    client.command(f"DROP DATABASE {quote(name)}")


def config(clickhouse: devservers.ClickHouse, database: str, table: str) -> dict[str, Any]:
    place = ".".join('"' + name.replace('"', '""') + '"' for name in (database, table))
    return {"connectionString": clickhouse.dsn(), "table": place}


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("`shop`.`order.new`", ("shop", "order.new")),
        ('shop."a``b"', ("shop", "a``b")),
        ("`a``.b`.c", ("a`.b", "c")),
    ],
)
def test_a_table_is_named_with_either_kind_of_quotes(table: str, found: tuple[str, str]) -> None:
    given = {"connectionString": "http://localhost:8123/d", "table": table}
    assert ClickhouseConnection.model_validate(given).place() == found


def test_any_name_is_made_upserted_deleted_and_read(
    clickhouse: devservers.ClickHouse, client: Client, named: str
) -> None:
    upsert = {"upsertMode": True, "conflictKey": [KEY, "b`c"], "deleteMode": "hard"}
    columns = {KEY: "Int64", "b`c": "String", PRICE: "Nullable(UInt8)", OTHER: "DateTime"}
    made = {"autoCreateTable": True, "columns": columns, "partitionBy": quote("b`c")}
    place = config(clickhouse, named, f"t.{NASTY}")
    sink = ClickhouseSink.model_validate({**place, **upsert, **made})
    session = start(sink)
    session.table.create(pa.schema([]))

    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {KEY: key, "b`c": "x", PRICE: price, OTHER: at}
        for key, price in ((1, 1), (2, 2), (1, 3), (3, 4))
    ]
    store(sink, rows, session=session)
    store(sink, [{KEY: 2, "b`c": "x", OP: DELETE}], session=session)
    session.close()
    table = quote(named, f"t.{NASTY}")
    found = client.query(f"SELECT {quote(KEY)}, {quote(PRICE)} FROM {table} FINAL ORDER BY 1")
    assert [tuple(each) for each in found.result_rows] == [(1, 3), (3, 4)]
    stored = sink.peek(TARGET)
    assert stored is not None
    assert stored.positions == {"0": 5}
    given = {"orderByColumn": KEY, "changeTrackingColumn": OTHER, "final": True}
    source = ClickhouseSource.model_validate({**place, **given})
    with closing(source.open("shop/read")) as reading:
        span = reading.plan(reading.start(), Limit(100))
    parts = [piece for piece in span.slices if isinstance(piece, PartSlice)]
    batches = [batch for piece in parts for batch in source.batches(piece, frozenset())]
    assert sorted(n for batch in batches for n in batch.column(KEY).to_pylist()) == [1, 3]


def test_rows_that_such_a_table_refuses_are_rejected(
    clickhouse: devservers.ClickHouse, client: Client, named: str
) -> None:
    table = quote(named, NASTY)
    client.command(
        f"CREATE TABLE {table} ({quote(KEY)} Int64, CONSTRAINT {quote('c ' + NASTY)} "
        f"CHECK {quote(KEY)} < 5) ENGINE = MergeTree ORDER BY {quote(KEY)} "
        "SETTINGS non_replicated_deduplication_window = 100"
    )
    sink = ClickhouseSink.model_validate(config(clickhouse, named, NASTY))
    store(sink, [{KEY: 1}, {KEY: 9}]).close()
    assert client.query(f"SELECT * FROM {table}").result_rows == [(1,)]
    rejected = quote(named, f"{NASTY}_rejected")
    assert client.query(f"SELECT offset FROM {rejected}").result_rows == [(1,)]


def test_frames_take_any_name(
    clickhouse: devservers.ClickHouse, named: str, spark: SparkSession
) -> None:
    place = ClickhouseFrameTable(clickhouse.dsn(), named, NASTY)
    names = ["1 Order.No", 'it\'s "%" {x:Int8}']
    for value in ("a", "b"):
        frame = spark.createDataFrame([(1, value)], f"`{names[0]}` int, `{names[1]}` string")
        assert write(place, frame, "overwrite", names[:1]) == 1
    with ExitStack() as held:
        found = read(place, spark, names[1:], held).collect()
    assert [tuple(row) for row in found] == [("b",)]
