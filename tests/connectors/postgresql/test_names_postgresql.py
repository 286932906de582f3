"""Every name that PostgreSQL takes is one that a manifest can give: names are always quoted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession
from typing_extensions import override

import devservers
from dataflow_assets.connectors.postgresql import PostgresqlSink, PostgresqlSource
from dataflow_assets.connectors.postgresql.frames import write as frames_write
from dataflow_assets.connectors.postgresql.frames.frame_table import PostgresqlFrameTable
from dataflow_assets.connectors.postgresql.frames.read import read
from dataflow_assets.connectors.postgresql.sink.encode_copy import textual
from dataflow_assets.contracts import DELETE, OP, OffsetSlice, Rejection, Run
from dataflow_assets.sdk.database import join, split
from dataflow_assets.sdk.rejected_records import error_record
from tests.connectors.postgresql import driver
from tests.connectors.postgresql.driver import TARGET, Place
from tests.sdk.polled import Polled

HOSTILE = "x') IS NULL, pg_sleep(20) IS NULL, to_regclass('y.t"
NASTY = """1 it's "Größe" 100% {x} $1 \\n--.select"""
SCHEMAS = {"quote": "it's", "hostile": HOSTILE, "nasty": NASTY, "keyword": "select"}


@pytest.fixture(params=SCHEMAS)
def named(postgresql: devservers.PostgreSQL, request: pytest.FixtureRequest) -> Iterator[str]:
    """A schema of such a name; dropped after the test."""
    name = f"{SCHEMAS[request.param]}{uuid4().hex[:6]}"
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        yield name
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def test_a_name_is_shown_as_it_is_read() -> None:
    for place in (("shop", "orders"), ("a.b", "c"), ("shop", "a.b"), ("", "a.b"), ('"', "`.")):
        assert split(join(*place)) == place
    assert join("shop", "orders") == "shop.orders"


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("orders", ("", "orders")),
        ("shop.orders", ("shop", "orders")),
        ("a.b.c", ("a.b", "c")),
        ('"a.b".c', ("a.b", "c")),
        ('shop."order.new"', ("shop", "order.new")),
        ('"a ""b""."."."', ('a "b".', ".")),
        ('"order.new"', ("", "order.new")),
        ("it's", ("", "it's")),
        ('5" pipes', ("", '5" pipes')),
        ("`a.b`", ("`a", "b`")),
    ],
)
def test_a_table_is_named_as_in_sql_where_a_dot_needs_quotes(
    table: str, found: tuple[str, str]
) -> None:
    assert split(table) == found


@dataclass
class Named(Polled):
    """Tables, keys and change columns of such names."""

    columns = ("1 Order.No", "it's", 'Größe "%" {x}', "user")

    @override
    def run(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), arguments or None)
            return cursor.fetchall() if cursor.description else []

    def place(self, table: str) -> str:
        return f"{quoted(self.schema)}.{quoted(table)}"

    @property
    @override
    def source(self) -> PostgresqlSource:
        _, order, change, _ = self.columns
        config = {"orderByColumn": order, "changeTrackingColumn": change}
        place = {"connectionString": self.dsn, "table": self.place(f"source{NASTY}")}
        return PostgresqlSource.model_validate({**place, **config})

    @property
    @override
    def sink(self) -> PostgresqlSink:
        key, order, change, _ = self.columns
        config = {"upsertMode": True, "conflictKey": [key, order], "autoCreateTable": True}
        newer = {"upsertStrategy": "ifNewer", "upsertVersionColumn": change}
        place = {"connectionString": self.dsn, "table": self.place(f"target{NASTY}")}
        return PostgresqlSink.model_validate({**place, **config, **newer, "deleteMode": "hard"})


def test_any_name_is_read_made_upserted_and_deleted(
    postgresql: devservers.PostgreSQL, named: str
) -> None:
    shop = Named(postgresql.dsn(), named)
    key, order, change, other = map(quoted, shop.columns)
    source, target = shop.place(f"source{NASTY}"), shop.place(f"target{NASTY}")
    shop.run(
        f"CREATE TABLE {source} ({key} text, {order} int PRIMARY KEY, {change} timestamptz, "
        f"{other} text)"
    )
    insert = f"INSERT INTO {source} SELECT 'a', n, now() - interval '1 hour', 'x' "
    shop.run(insert + "FROM generate_series(1, 3) AS n")
    shop.drain()
    shop.run(f"UPDATE {source} SET {other} = 'y', {change} = now() WHERE {order} = 2")
    shop.drain()
    rows = f"SELECT {order}, {other} FROM {target} ORDER BY 1"
    assert shop.run(rows) == [(1, "x"), (2, "y"), (3, "x")]
    session = shop.sink.open(TARGET, Run("r", "h", 1))
    session.restart({"0": 0}, "t1")
    columns = shop.columns
    at = datetime(2030, 1, 1, tzinfo=UTC)
    driver.store(
        shop.sink,
        [
            {columns[0]: "a", columns[1]: 1, OP: DELETE},
            {columns[0]: "a", columns[1]: 3, columns[2]: at, columns[3]: "z"},
            {columns[0]: None, columns[1]: 4},
        ],
        session=session,
    )
    session.close()
    assert shop.run(rows) == [(2, "y"), (3, "z")]
    stored = shop.sink.peek(TARGET)
    assert stored is not None
    assert (stored.positions, stored.totals.rejected) == ({"0": 3}, 1)


def test_any_name_marks_deletions_and_takes_error_records(
    postgresql: devservers.PostgreSQL, named: str
) -> None:
    place = Place(postgresql.dsn(), named)
    config = {"upsertMode": True, "table": f"{quoted(named)}.{quoted('t.1')}"}
    sink = place.sink(**config, softDeleteColumn="gone at")
    place.run('CREATE TABLE "t.1" ("Order No" int PRIMARY KEY, "gone at" timestamptz)')
    rows = [{"Order No": 1}, {"Order No": 2}, {"Order No": 1, OP: DELETE}]
    driver.store(sink, rows).close()
    assert place.run('SELECT "Order No" FROM "t.1" WHERE "gone at" IS NOT NULL') == [(1,)]
    errors = place.sink(table=f"{quoted(named)}.{quoted('errors.' + NASTY)}", autoCreateTable=True)
    slice_ = OffsetSlice("0", 0, 1)
    record = error_record(TARGET, slice_, Rejection(0, "sink", "why", b"{}"))
    store = errors.error_store()
    store.prepare()
    store.store([record])
    assert [entry.id for entry in store.pending(TARGET.flow, None, 10)] == [record.id]
    store.mark_replayed(store.pending(TARGET.flow, None, 10))
    assert store.pending(TARGET.flow, None, 10) == []


def test_frames_take_any_name(
    postgresql: devservers.PostgreSQL, schema: str, spark: SparkSession
) -> None:
    place = PostgresqlFrameTable(postgresql.dsn(), schema, NASTY)
    names = ["1 Order.No", 'it\'s "%" {x}']
    for value in ("a", "b"):
        frame = spark.createDataFrame([(1, value)], f"`{names[0]}` int, `{names[1]}` string")
        assert frames_write.write(place, frame, "upsert", names[:1], encode=textual) == 1
    with ExitStack() as held:
        found = read(place, spark, names[1:], held).collect()
    assert [tuple(row) for row in found] == [("b",)]
