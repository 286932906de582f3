"""Flows of the end-to-end suite: a manifest on disk, and what stands in its target."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyiceberg.catalog import Catalog

import devservers
from dataflow_assets.connectors.clickhouse import client as clients
from tests import arrivals
from tests.arrivals import Row
from tests.conftest import Topics
from tests.connectors.kafka.topics import committed
from tests.e2e.flows import (
    KAFKA_TO_CLICKHOUSE,
    KAFKA_TO_ICEBERG,
    KAFKA_TO_ICEBERG_UPSERT,
    KAFKA_TO_KAFKA,
    KAFKA_TO_POSTGRESQL,
    Command,
    iceberg_values,
    produce,
    record,
    write,
)


@dataclass
class RealFlow:
    """One manifest on real servers."""

    manifest: Path
    topic: str
    kafka: devservers.Kafka
    ids: Callable[[], list[int]]
    arrived: Callable[[], list[list[Row]]] = list
    """The rows, in sequences in each of which the sink keeps the order of a partition."""
    produced: int = 0

    def produce(self, count: int) -> None:
        numbers = range(self.produced, self.produced + count)
        produce(self.kafka, self.topic, map(record, numbers))
        self.produced += count

    def expect_everything_once(self) -> None:
        """Every record once, with its values, and each partition in its order."""
        assert self.ids() == list(range(self.produced))
        for sequence in self.arrived():
            assert [row for row in sequence if not _as_sent(row)] == []
            for partition in (0, 1):
                of_it = [row["id"] for row in sequence if row["id"] % 2 == partition]
                assert of_it == sorted(of_it), f"partition {partition}"


def _as_sent(row: Row) -> bool:
    number, nested = row["id"], row["nested"]
    nested = json.loads(nested) if isinstance(nested, str) else nested
    return bool(row["name"] == f"name-{number}" and nested == {"n": number})


@dataclass
class Changes(RealFlow):
    """Records that change the same keys again and again; `ids` are the numbers of the last."""

    keys: int = 500

    def produce(self, count: int) -> None:
        numbers = range(self.produced, self.produced + count)
        bodies = [json.dumps({"id": n % self.keys, "number": n}).encode() for n in numbers]
        produce(self.kafka, self.topic, bodies)
        self.produced += count

    def expect_everything_once(self) -> None:
        """Each key once, as its last record has it."""
        assert self.ids() == list(range(self.produced))[-self.keys :]
        (rows,) = self.arrived()
        assert [row for row in rows if row["id"] != row["number"] % self.keys] == []


@pytest.fixture
def command(spark_server: devservers.SparkConnect) -> Command:
    return Command(spark_server.remote)


@pytest.fixture
def to_postgresql(
    tmp_path: Path,
    kafka: devservers.Kafka,
    topic: Topics,
    postgresql: devservers.PostgreSQL,
    schema: str,
) -> RealFlow:
    dsn, table, name = postgresql.dsn(), f"{schema}.target", topic(2)
    columns = f"id bigint not null, name text, nested jsonb, {arrivals.IDENTITY}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"create table {table} ({columns})".encode())

    def ids() -> list[int]:
        with psycopg.connect(dsn) as connection:
            return [int(row[0]) for row in connection.execute(f"select id from {table} order by 1")]

    manifest = write(
        tmp_path,
        KAFKA_TO_POSTGRESQL,
        name=_fresh(),
        bootstrap=kafka.bootstrap,
        topic=name,
        limit=700,
        dsn=dsn,
        table=table,
    )
    return RealFlow(manifest, name, kafka, ids, lambda: [arrivals.postgresql(dsn, table)])


@pytest.fixture
def to_iceberg(
    tmp_path: Path,
    kafka: devservers.Kafka,
    topic: Topics,
    seaweedfs: devservers.SeaweedFS,
    catalog: Catalog,
    namespace: str,
) -> RealFlow:
    name = topic(2)
    values = _lake_values(kafka, seaweedfs, name, namespace)
    manifest = write(tmp_path, KAFKA_TO_ICEBERG, **values)
    rows = partial(_rows, catalog, namespace)
    return RealFlow(manifest, name, kafka, lambda: _numbers(catalog, namespace, "id"), rows)


@pytest.fixture
def to_iceberg_upsert(
    tmp_path: Path,
    kafka: devservers.Kafka,
    topic: Topics,
    seaweedfs: devservers.SeaweedFS,
    catalog: Catalog,
    namespace: str,
) -> RealFlow:
    name = topic(2)
    values = _lake_values(kafka, seaweedfs, name, namespace)
    manifest = write(tmp_path, KAFKA_TO_ICEBERG_UPSERT, **values)
    rows = partial(_rows, catalog, namespace)
    return Changes(manifest, name, kafka, lambda: _numbers(catalog, namespace, "number"), rows)


def _lake_values(
    kafka: devservers.Kafka, seaweedfs: devservers.SeaweedFS, topic: str, namespace: str
) -> dict[str, Any]:
    place = {"bootstrap": kafka.bootstrap, "topic": topic, "namespace": namespace}
    return {"name": _fresh(), "limit": 700, "table": "target", **place, **iceberg_values(seaweedfs)}


def _rows(catalog: Catalog, namespace: str) -> list[list[Row]]:
    return [arrivals.iceberg(catalog.load_table((namespace, "target")))]


def _numbers(catalog: Catalog, namespace: str, column: str) -> list[int]:
    table = catalog.load_table((namespace, "target"))
    found: list[int] = table.scan(selected_fields=(column,)).to_arrow().column(column).to_pylist()
    return sorted(found)


@pytest.fixture
def to_clickhouse(
    tmp_path: Path,
    kafka: devservers.Kafka,
    topic: Topics,
    clickhouse: devservers.ClickHouse,
    database: str,
) -> RealFlow:
    dsn, name = clickhouse.dsn(database), topic(2)

    def ids() -> list[int]:
        with clients.connect(dsn, "tests") as client:
            return [
                id_ for (id_,) in clients.query_rows(client, "select id from target order by id")
            ]

    manifest = write(
        tmp_path,
        KAFKA_TO_CLICKHOUSE,
        name=_fresh(),
        bootstrap=kafka.bootstrap,
        topic=name,
        limit=700,
        dsn=dsn,
        table="target",
    )

    def rows() -> list[list[Row]]:
        with clients.connect(dsn, "tests") as client:
            return [arrivals.clickhouse(client, "target")]

    return RealFlow(manifest, name, kafka, ids, rows)


@pytest.fixture
def to_kafka(tmp_path: Path, kafka: devservers.Kafka, topic: Topics) -> RealFlow:
    name, target = topic(2), topic(3)

    def ids() -> list[int]:
        found = committed(kafka.bootstrap, target)
        return sorted(int(json.loads(m.value() or b"")["id"]) for m in found)

    manifest = write(
        tmp_path,
        KAFKA_TO_KAFKA,
        name=_fresh(),
        bootstrap=kafka.bootstrap,
        topic=name,
        limit=700,
        target=target,
    )
    return RealFlow(manifest, name, kafka, ids, lambda: arrivals.kafka(kafka.bootstrap, target))


def _fresh() -> str:
    return f"flow-{uuid.uuid4().hex[:8]}"
