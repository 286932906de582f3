"""Whole tables of PostgreSQL as DataFrames: values that few columns have, and writers at once."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.postgresql.frames import write as frames_write
from dataflow_assets.connectors.postgresql.frames.frame_table import PostgresqlFrameTable
from dataflow_assets.connectors.postgresql.frames.read import read
from dataflow_assets.connectors.postgresql.sink.encode_copy import textual
from dataflow_assets.contracts import Kind
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.columns import fit
from dataflow_assets.sdk.table_frames import LEFT_SECONDS, STAGES, Mode
from dataflow_assets.spark.errors import task_failure
from tests.frames import local_frame

write = partial(frames_write.write, encode=textual)
ODD_ROLE = "?options=" + "%20".join(
    f"-c%20{each}" for each in ("datestyle%3Dgerman", "bytea_output%3Descape", "timezone%3DPRC")
)


@pytest.fixture
def link(postgresql: devservers.PostgreSQL, schema: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
        yield connection


@pytest.fixture
def table(postgresql: devservers.PostgreSQL, schema: str) -> PostgresqlFrameTable:
    return PostgresqlFrameTable(postgresql.dsn(), schema, "t")


@pytest.fixture
def rows(table: PostgresqlFrameTable, engine: SparkSession) -> Callable[[], list[Any]]:
    """The values of the column `v`."""

    def read_all() -> list[Any]:
        with ExitStack() as held:
            found: list[Any] = read(table, engine, ["v"], held).toArrow().column("v").to_pylist()
        return found

    return read_all


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("numeric", "1e25"),
        ("numeric", "1e30"),
        ("numeric", "-1e22"),
        ("numeric", "340282366920938463463.374607431768211456"),
        ("numeric", "1e200"),
        ("numeric", "0.1234567890123456789"),
        ("numeric", "1e-20"),
        ("numeric", "NaN"),
        ("numeric", "Infinity"),
        ("numeric(10, 2)", "NaN"),
        ("numeric(50, 2)", "1e40"),
        ("date", "infinity"),
        ("date", "0001-01-01 BC"),
        ("date", "10000-01-01"),
        ("timestamp", "-infinity"),
        ("timestamp", "10000-01-01"),
        ("timestamptz", "infinity"),
        ("timestamptz", "0044-03-15 BC"),
    ],
)
def test_a_value_that_a_frame_has_no_room_for_is_refused_by_its_column(
    kind: str, text: str, link: psycopg.Connection, rows: Callable[[], list[Any]]
) -> None:
    usual = "1" if kind.startswith("numeric") else "2026-01-01"
    link.execute(f"CREATE TABLE t (v {kind})")
    link.execute(f"INSERT INTO t VALUES (NULL), ('{usual}'), ('{text}')")
    with pytest.raises(PySparkException) as caught:
        rows()
    error = task_failure(caught.value)
    assert isinstance(error, PermanentError)
    assert str(error).startswith("column v of ")
    ((shown,),) = link.execute("SELECT v::text FROM t OFFSET 2").fetchall()
    assert f"holds {shown[:19]}" in str(error)


@pytest.mark.parametrize(
    "text",
    ["12345678901234567890.123456789012345678", "-0.000000000000000001", "1.50", "0", "1e19"],
)
def test_a_numeric_without_precision_is_read_exactly(
    text: str, link: psycopg.Connection, rows: Callable[[], list[Any]]
) -> None:
    link.execute("CREATE TABLE t (v numeric)")
    link.execute(f"INSERT INTO t VALUES ('{text}'), (NULL)")
    assert rows() == [decimal.Decimal(text), None]


def test_the_settings_of_a_role_change_no_value(
    postgresql: devservers.PostgreSQL, schema: str, link: psycopg.Connection, engine: SparkSession
) -> None:
    link.execute("CREATE TABLE t (d date, z timestamptz, b bytea, f float8)")
    link.execute("INSERT INTO t VALUES ('2026-02-01', '2026-02-01 12:00Z', '\\x00ff5c', 0.1)")
    place = PostgresqlFrameTable(postgresql.dsn() + ODD_ROLE, schema, "t")
    with ExitStack() as held:
        (row,) = read(place, engine, None, held).toArrow().to_pylist()
    assert (row["d"], row["b"], row["f"]) == (dt.date(2026, 2, 1), b"\x00\xff\\", 0.1)
    assert row["z"] == dt.datetime(2026, 2, 1, 12, tzinfo=dt.UTC)


def test_what_a_killed_write_has_left_is_dropped_after_a_week(
    link: psycopg.Connection, table: PostgresqlFrameTable, engine: SparkSession
) -> None:
    week_ago, now = int(time.time()) - LEFT_SECONDS - 60, int(time.time())
    old, new = f"{STAGES}{week_ago}_0123abcd", f"{STAGES}{now}_0123abcd"
    for name in (old, new, f"{STAGES}mine"):
        link.execute(sql.SQL("CREATE UNLOGGED TABLE {} (i int)").format(sql.Identifier(name)))
    write(table, local_frame([{"i": 1}], pa.schema([("i", pa.int32())]), engine), "append", ())
    query = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
    assert {name for (name,) in link.execute(query)} == {"t", new, f"{STAGES}mine"}


@pytest.mark.parametrize("mode", ["append", "overwrite", "upsert"])
def test_a_write_that_the_table_refuses_leaves_no_copy_of_its_rows(
    link: psycopg.Connection, table: PostgresqlFrameTable, engine: SparkSession, mode: Mode
) -> None:
    link.execute("CREATE TABLE t (v int PRIMARY KEY)")
    frame = local_frame([{"v": 1}, {"v": 1}], pa.schema([("v", pa.int32())]), engine)
    with pytest.raises(PermanentError):
        write(table, frame, mode, ["v"])
    query = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
    assert {name for (name,) in link.execute(query)} == {"t", "t_pkey"}


def test_two_that_overwrite_at_once_leave_the_rows_of_one(
    table: PostgresqlFrameTable, link: psycopg.Connection, engine: SparkSession
) -> None:
    """Both are about to delete what was there, when a third one lets go of it."""
    link.execute("CREATE TABLE t (v int)")
    link.execute("INSERT INTO t VALUES (0)")
    schema = pa.schema([("v", pa.int32())])

    def put(value: int) -> None:
        write(table, local_frame([{"v": value}] * 5, schema, engine), "overwrite", ())

    writers = [threading.Thread(target=put, args=[value]) for value in (1, 2)]
    with psycopg.connect(table.connection) as other:
        other.execute(f"SELECT FROM {table.name} FOR UPDATE".encode())
        for writer in writers:
            writer.start()
        while _waiting(link, table) < 2:
            time.sleep(0.01)
    for writer in writers:
        writer.join()
    found = [value for (value,) in link.execute("SELECT v FROM t")]
    assert found in ([1] * 5, [2] * 5)


def _waiting(link: psycopg.Connection, table: PostgresqlFrameTable) -> int:
    """Sessions that wait for a lock of the table, or of its row."""
    query = (
        "SELECT count(DISTINCT l.pid) FROM pg_locks w JOIN pg_locks l USING (pid) "
        "WHERE NOT w.granted AND l.relation = %s::regclass"
    )
    ((count,),) = link.execute(query, [table.name]).fetchall()
    return int(count)


def test_nested_values_keep_their_types() -> None:
    kinds = {
        "n": pa.struct([("d", pa.decimal128(10, 2)), ("b", pa.binary())]),
        "l": pa.list_(pa.decimal128(38, 2)),
        "m": pa.map_(pa.string(), pa.int32()),
        "k": pa.map_(pa.int32(), pa.decimal128(10, 1)),
        "t": pa.list_(pa.timestamp("us", "UTC")),
        "e": pa.list_(pa.duration("us")),
    }
    hour = dt.timedelta(hours=1, microseconds=5)
    at = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    big = decimal.Decimal("123456789012345678901234567890123456.50")
    rows: list[Mapping[str, Any]] = [
        {
            "n": {"d": decimal.Decimal("1.50"), "b": b"ab\xff"},
            "l": [big, None],
            "m": [],
            "k": [(7, decimal.Decimal("0.5"))],
            "t": [at],
            "e": [hour, -hour],
        },
        dict.fromkeys(kinds),
        {"n": {"d": None, "b": None}, "l": [], "m": [('a"b', None)], "k": None, "t": [], "e": []},
    ]
    batch = pa.RecordBatch.from_pylist(list(rows), pa.schema(kinds))
    json_texts = pa.schema([Kind.JSON.field(n) for n in kinds])
    for start in (0, 1, 2):
        (found, *_) = fit("t", batch.slice(start), json_texts).to_pylist()
        assert (
            found
            == [
                {
                    "n": '{"d":1.50,"b":"YWL/"}',
                    "l": f"[{big},null]",
                    "m": "{}",
                    "k": '{"7":0.5}',
                    "t": '["2026-01-31T12:00:00Z"]',
                    "e": '["PT3600.000005S","-PT3600.000005S"]',
                },
                dict.fromkeys(kinds),
                {
                    "n": '{"d":null,"b":null}',
                    "l": "[]",
                    "m": '{"a\\"b":null}',
                    "k": None,
                    "t": "[]",
                    "e": "[]",
                },
            ][start]
        )


def test_a_made_table_has_types_that_hold_the_values(
    table: PostgresqlFrameTable, link: psycopg.Connection, engine: SparkSession
) -> None:
    schema = pa.schema(
        [
            ("i", pa.duration("us")),
            ("s", pa.struct([("d", pa.decimal128(4, 2))])),
            ("b", pa.binary()),
        ]
    )
    day = dt.timedelta(days=1, seconds=1)
    given = [{"i": day, "s": {"d": decimal.Decimal("1.50")}, "b": b"\x00"}]
    write(table, local_frame(given, schema, engine), "overwrite", ())
    ((interval, struct, raw),) = link.execute("SELECT i, s::text, b FROM t").fetchall()
    assert (interval, json.loads(struct), raw) == (day, {"d": 1.5}, b"\x00")
    assert struct == '{"d": 1.50}'


def test_an_upsert_leaves_the_columns_alone_that_a_frame_lacks(
    table: PostgresqlFrameTable, link: psycopg.Connection, engine: SparkSession
) -> None:
    link.execute("CREATE TABLE t (v int PRIMARY KEY, a text, b text DEFAULT 'new')")
    link.execute("INSERT INTO t VALUES (1, 'a', 'b'), (2, 'a', 'b')")
    schema = pa.schema([("v", pa.int32()), ("a", pa.string())])

    def put(rows: Sequence[Mapping[str, Any]], mode: Mode = "upsert") -> None:
        write(table, local_frame(rows, schema, engine), mode, ["v"])

    put([{"v": 1, "a": "x"}, {"v": 3, "a": "y"}])
    found = link.execute("SELECT * FROM t ORDER BY v").fetchall()
    assert found == [(1, "x", "b"), (2, "a", "b"), (3, "y", "new")]
    with pytest.raises(PermanentError, match=r"null in the key \(v\)"):
        put([{"v": None, "a": "x"}])
    with pytest.raises(PermanentError, match="several rows of one key"):
        put([{"v": 1, "a": "x"}, {"v": 1, "a": "y"}])
    assert link.execute("SELECT * FROM t ORDER BY v").fetchall() == found
