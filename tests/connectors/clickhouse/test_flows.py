"""Manifests that read ClickHouse, as they stand in examples/, on real servers (hosts aside)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.clickhouse import client
from dataflow_assets.contracts import Run
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from dataflow_assets.testing import choose
from tests import ROOT

EXAMPLES = ROOT / "examples"


class Place:
    """One manifest with its hosts replaced, and the two databases it is about."""

    def __init__(
        self, clickhouse: Any, postgresql: Any, folder: Path, engine: SparkSession
    ) -> None:
        self.clickhouse, self.postgresql = clickhouse, postgresql
        self.folder, self.engine = folder, engine

    def run(self, path: str, hosts: dict[str, str]) -> None:
        text = (EXAMPLES / path).read_text(encoding="utf-8")
        for written, real in hosts.items():
            assert written in text
            text = text.replace(written, real)
        file = self.folder / Path(path).name
        file.write_text(text, encoding="utf-8")
        self.drain(file)

    def drain(self, file: Path) -> None:
        flow = choose(load([file]), None)
        list(drain(flow, lambda: self.engine, Request(Run(), patience=Patience(120, 0.01, 0.05))))

    def stored(self, sql: str) -> list[tuple[Any, ...]]:
        return list(self.postgresql.execute(sql).fetchall())


@pytest.fixture
def place(
    clickhouse: devservers.ClickHouse,
    postgresql: devservers.PostgreSQL,
    database: str,
    schema: str,
    engine: SparkSession,
    tmp_path: Path,
) -> Iterator[Place]:
    connected = client.connect(clickhouse.dsn(database), "tests")
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        yield Place(connected, connection, tmp_path, engine)
    connected.close()


def test_the_example_keeps_a_table_up_to_date(
    place: Place,
    clickhouse: devservers.ClickHouse,
    postgresql: devservers.PostgreSQL,
    database: str,
    schema: str,
) -> None:
    place.clickhouse.command(
        "CREATE TABLE orders (id UInt64, updated_at DateTime64(6), price Decimal(12, 2), "
        "tags Array(String), kind Enum8('new' = 1, 'old' = 2)) "
        "ENGINE = ReplacingMergeTree(updated_at) ORDER BY id"
    )
    made = "SELECT number, toDateTime64('2026-01-01', 6) + number, number / 4, ['a'], 'new'"
    place.clickhouse.command(f"INSERT INTO orders {made} FROM numbers(1000)")
    hosts = {
        "clickhouse://default@localhost:9000/shop?dial_timeout=10s": clickhouse.dsn(database),
        "postgresql://postgres@localhost:5432/postgres": postgresql.dsn(),
        "table: orders_from_clickhouse": f"table: {schema}.t",
    }
    place.run("clickhouse-to-postgresql.yaml", hosts)
    place.clickhouse.command(
        "INSERT INTO orders VALUES (5, '2026-02-01', 0.5, ['a', 'b'], 'old'), "
        "(2000, '2026-02-01', 1.5, [], 'new')"
    )
    place.run("clickhouse-to-postgresql.yaml", hosts)
    assert place.stored(f"SELECT count(*), count(DISTINCT id) FROM {schema}.t") == [(1001, 1001)]
    changed = f"SELECT id, price, kind FROM {schema}.t WHERE id IN (4, 5, 2000) ORDER BY id"
    assert [(int(i), float(p), k) for i, p, k in place.stored(changed)] == [
        (4, 1.0, "new"),
        (5, 0.5, "old"),
        (2000, 1.5, "new"),
    ]


def test_the_documentation_s_source_runs_as_written(
    place: Place,
    clickhouse: devservers.ClickHouse,
    postgresql: devservers.PostgreSQL,
    database: str,
    schema: str,
) -> None:
    columns = "price_id Int64, id Int64, created_at DateTime, price Decimal(10, 2)"
    order = "ENGINE = MergeTree ORDER BY price_id"
    place.clickhouse.command(f"CREATE TABLE source_table ({columns}) {order}")
    place.postgresql.execute(
        f"CREATE TABLE {schema}.target_table "
        "(price_id bigint, id bigint, created_at timestamptz, price numeric)"
    )
    rows = "SELECT number, number, toDateTime('2026-01-01') + number, number / 4"
    place.clickhouse.command(f"INSERT INTO source_table {rows} FROM numbers(1500)")
    hosts = {
        "clickhouse://default@clickhouse:9000/default?dial_timeout=10s": clickhouse.dsn(database),
        "postgres://user:password@localhost:5432/dbname?sslmode=disable": postgresql.dsn(),
        "table: target_table": f"table: {schema}.target_table",
    }
    place.run("seeds/clickhouse-source.yaml", hosts)
    count = f"SELECT count(*), min(id), max(price) FROM {schema}.target_table"
    assert [tuple(map(float, row)) for row in place.stored(count)] == [(1399, 101, 374.75)]
    place.clickhouse.command(
        "INSERT INTO source_table VALUES (7, 5000, '2026-02-01 00:00:00', 1), "
        "(8, 5, '2026-02-01 00:00:00', 1)"
    )
    place.run("seeds/clickhouse-source.yaml", hosts)
    assert place.stored(f"SELECT id FROM {schema}.target_table WHERE price_id < 100") == [(5000,)]


FLOW = """
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: {name}
spec:
  maxRecordsPerBatch: {most}
  source:
    type: clickhouse
    config: {{connectionString: "{clickhouse}", table: orders, pollInterval: 0}}
  {steps}
  sink:
    type: postgresql
    config: {{connectionString: "{postgresql}", table: {schema}.target, autoCreateTable: true}}
"""
STEPS = """transformations:
    - type: insertField
      config: {fields: {origin: "${metadata.table}/${metadata.id}"}, interpolate: true}
"""


def written(folder: Path, **values: Any) -> Path:
    path = folder / "flow.yaml"
    path.write_text(FLOW.format(**{"name": f"f-{uuid.uuid4().hex[:8]}", "steps": "", **values}))
    return path


@pytest.mark.crash
@pytest.mark.parametrize("failpoint", ["clickhouse.read", "clickhouse.read-batch"])
def test_a_first_load_that_breaks_off_neither_loses_nor_doubles(
    place: Place,
    clickhouse: devservers.ClickHouse,
    postgresql: devservers.PostgreSQL,
    database: str,
    schema: str,
    failpoint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows come in the meantime, too."""
    columns = "id Int64, created_at DateTime64(6, 'UTC')"
    place.clickhouse.command(f"CREATE TABLE orders ({columns}) ENGINE = MergeTree ORDER BY id")
    made = "SELECT number, toDateTime64('2026-01-01', 6, 'UTC') + number FROM numbers(100000)"
    place.clickhouse.command(f"INSERT INTO orders {made}")
    given = {"clickhouse": clickhouse.dsn(database), "postgresql": postgresql.dsn()}
    path = written(place.folder, **given, schema=schema, most=20_000)
    monkeypatch.setenv("DATAFLOW_FAILPOINT", f"{failpoint}:raise:3")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
    place.drain(path)
    place.clickhouse.command("INSERT INTO orders VALUES (7, '2026-03-01'), (200000, '2026-03-01')")
    place.drain(path)
    counted = f"SELECT count(*), count(DISTINCT id), max(id) FROM {schema}.target"
    assert place.stored(counted) == [(100_002, 100_001, 200_000)]
    assert place.stored(f"SELECT count(*) FROM {schema}.target WHERE id = 7") == [(2,)]


def test_steps_see_rows_with_their_metadata(
    place: Place,
    clickhouse: devservers.ClickHouse,
    postgresql: devservers.PostgreSQL,
    database: str,
    schema: str,
) -> None:
    columns = "id UInt64, created_at DateTime, big Decimal(30, 10), m Map(String, UInt8)"
    place.clickhouse.command(f"CREATE TABLE orders ({columns}) ENGINE = MergeTree ORDER BY id")
    place.clickhouse.command(
        "INSERT INTO orders VALUES (18446744073709551615, '2026-01-01 00:00:00', "
        "'12345678901234567890.0123456789', {'a': 1})"
    )
    given = {"clickhouse": clickhouse.dsn(database), "postgresql": postgresql.dsn()}
    place.drain(written(place.folder, **given, schema=schema, most=100, steps=STEPS))
    found = place.stored(f"SELECT id::text, big::text, m::text, origin FROM {schema}.target")
    assert found == [
        (
            "18446744073709551615",
            "12345678901234567890.0123456789",
            '{"a": 1}',
            "orders/18446744073709551615",
        )
    ]
