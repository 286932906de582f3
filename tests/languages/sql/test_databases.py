"""Tables of databases: rows and their types, upserts and deletes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

import devservers
from dataflow_assets.flow import Flow
from dataflow_assets.runs.request import Report
from tests.connectors.iceberg.driver import connection
from tests.languages.sql.files import Sql

Run = Callable[[Flow], list[Report]]
COLUMNS = (
    "k BIGINT, t STRING, b BOOLEAN, d DOUBLE, n DECIMAL(10, 2), y BYTES, day DATE, "
    "at TIMESTAMP(3), l TIMESTAMP_LTZ(3), PRIMARY KEY (k) NOT ENFORCED"
)
CREATE = """
CREATE TABLE {}.t (k bigint PRIMARY KEY, t text, b boolean, d double precision, n numeric(10, 2),
  y bytea, day date, at timestamp, l timestamptz)
"""
BODY = {
    "t": "x",
    "b": True,
    "d": 0.5,
    "n": 12.30,
    "y": "AQI=",
    "day": "2020-12-30",
    "at": "2020-12-30 12:13:14.5",
    "l": "2020-12-30 12:13:14.5Z",
}
STORED = (
    "X",
    True,
    0.5,
    Decimal("12.30"),
    b"\1\2",
    date(2020, 12, 30),
    datetime(2020, 12, 30, 12, 13, 14, 500000),  # noqa: DTZ001
    datetime(2020, 12, 30, 12, 13, 14, 500000, UTC),
)


def test_postgresql_gets_upserts_deletes_and_every_type(
    sql: Sql, run: Run, postgresql: devservers.PostgreSQL, schema: str
) -> None:
    query = "SELECT k, UPPER(t), b, d, n, y, day, at, l FROM s WHERE t <> 'gone'"
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(CREATE.format(schema).encode())
        options = {"connector": "postgresql", "url": postgresql.dsn(), "table-name": f"{schema}.t"}
        flow = sql.write(COLUMNS, COLUMNS, query, target_with=options)

        def rows() -> list[tuple[object, ...]]:
            return connection.execute(f"SELECT * FROM {schema}.t ORDER BY k".encode()).fetchall()

        bodies = [json.dumps(BODY | {"k": k}).encode() for k in range(4)]
        sql.send((b'{"k":%d}' % k, body) for k, body in enumerate(bodies))
        run(flow)
        assert rows() == [(k, *STORED) for k in range(4)]
        sql.send(
            [
                (b'{"k":1}', None),
                (b'{"k":2}', json.dumps(BODY | {"k": 2, "t": "gone"}).encode()),
                (b'{"k":3}', b'{"k":3,"t":"y"}'),
                (b'{"k":9}', None),
            ]
        )
        run(flow)
        assert rows() == [(0, *STORED), (3, "Y", *[None] * 7)]


CHANGES = """
{"before":null,"after":{"id":1,"name":"a"},"op":"r"}
{"before":null,"after":{"id":2,"name":"b"},"op":"c"}
{"schema":{},"payload":{"before":{"id":1,"name":"a"},"after":{"id":1,"name":"c"},"op":"u"}}
{"before":{"id":2,"name":null},"after":null,"op":"d"}
{"before":{"id":1,"name":"c"},"after":{"id":3,"name":"c"},"op":"u"}
{"before":null,"after":{"id":4,"name":"d"},"op":"c"}
"""
OF_CANAL = """
{"type":"INSERT","data":[{"id":"1","name":"a"},{"id":"2","name":"b"}],"old":null}
{"type":"UPDATE","data":[{"id":"1","name":"x"},{"id":"1","name":"c"},{"id":"3","name":"c"}],
 "old":[{"name":"a"},{"name":"x"},{"id":"1"}]}
{"type":"ALTER","data":null,"isDdl":true}
{"type":"DELETE","data":[{"id":"2","name":"b"}],"old":null}
{"type":"INSERT","data":[{"id":"4","name":"d"}],"old":null}
"""


@pytest.mark.parametrize("key", [", PRIMARY KEY (id) NOT ENFORCED", ""])
@pytest.mark.parametrize(("kind", "text"), [("debezium-json", CHANGES), ("canal-json", OF_CANAL)])
def test_changes_are_upserts_and_deletes(
    sql: Sql,
    run: Run,
    postgresql: devservers.PostgreSQL,
    schema: str,
    kind: str,
    text: str,
    key: str,
) -> None:
    given = {
        "connector": "kafka",
        "topic": sql.source,
        "properties.bootstrap.servers": sql.kafka.bootstrap,
        "scan.startup.mode": "earliest-offset",
        "format": kind,
    }
    into = {"connector": "postgresql", "url": postgresql.dsn(), "table-name": f"{schema}.o"}
    keyed = "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.o (id bigint PRIMARY KEY, name text)".encode())
        flow = sql.write(
            f"id BIGINT, name STRING{key}",
            keyed,
            "SELECT id, name FROM s",
            "SET 'dataflow.onRejected' = 'fail';",
            source_with=given,
            target_with=into,
        )
        sent = [one.encode() for one in text.replace("\n ", " ").strip().splitlines()]
        sql.send((None, one) for one in (*sent, None))
        run(flow)
        rows = connection.execute(f"SELECT * FROM {schema}.o ORDER BY id".encode()).fetchall()
    assert rows == [(3, "c"), (4, "d")]


def test_iceberg_gets_upserts_and_deletes(
    sql: Sql, run: Run, seaweedfs: devservers.SeaweedFS, catalog: Catalog, namespace: str
) -> None:
    fields = [("k", pa.int64()), ("t", pa.string()), ("l", pa.timestamp("us", "UTC"))]
    catalog.create_table(f"{namespace}.t", pa.schema(fields))
    columns = "k BIGINT, t STRING, l TIMESTAMP_LTZ(3), PRIMARY KEY (k) NOT ENFORCED"
    options = {"connector": "iceberg", **connection(seaweedfs, namespace, "t")}
    flow = sql.write(COLUMNS, columns, "SELECT k, t, l FROM s", target_with=options)
    sql.send((b'{"k":%d}' % k, json.dumps(BODY | {"k": k}).encode()) for k in range(3))
    run(flow)
    sql.send([(b'{"k":1}', None), (b'{"k":2}', b'{"k":2,"t":"y"}')])
    run(flow)
    rows = catalog.load_table(f"{namespace}.t").scan().to_arrow().sort_by("k").to_pylist()
    assert rows == [{"k": 0, "t": "x", "l": STORED[-1]}, {"k": 2, "t": "y", "l": None}]


def test_clickhouse_gets_appended_rows(
    sql: Sql, run: Run, clickhouse: devservers.ClickHouse, database: str
) -> None:
    import clickhouse_connect

    dsn = clickhouse.dsn(database)
    with clickhouse_connect.get_client(dsn=dsn) as client:
        client.command(
            "CREATE TABLE t (k Int64, n Decimal(10, 2), l Nullable(DateTime64(3, 'UTC'))) "
            "ENGINE = MergeTree ORDER BY k SETTINGS non_replicated_deduplication_window = 10000"
        )
        options = {"connector": "clickhouse", "connectionString": dsn, "table": "t"}
        flow = sql.write(
            "k BIGINT, n DECIMAL(10, 2), l TIMESTAMP_LTZ(3)",
            "k BIGINT, n DECIMAL(10, 2), l TIMESTAMP_LTZ(3)",
            "SELECT k / 2, n * 2, l FROM s WHERE k > 1",
            target_with=options,
        )
        sql.send((None, json.dumps(BODY | {"k": k}).encode()) for k in range(4))
        run(flow)
        rows = client.query("SELECT k, n, toString(l) FROM t ORDER BY k").result_rows
    time = "2020-12-30 12:13:14.500"
    assert rows == [(1, Decimal("24.60"), time), (1, Decimal("24.60"), time)]
