"""A record that a table has refused has its headers, time and key when it is put back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.contracts import Run
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.replay import replay
from dataflow_assets.testing import choose
from tests.connectors.clickhouse.system import Clickhouse
from tests.connectors.postgresql.system import Postgresql
from tests.drained import drained
from tests.flows import SYSTEMS, manifest
from tests.systems import Config, System

COLUMNS = {
    "postgresql": ("bigint", "text"),
    "clickhouse": ("Int64", "Nullable(String)"),
    "iceberg": ("long", "string"),
}
NAMES = ("header", "time", "key", "offset")
READ = {"time": "timestamp", "key": "key", "offset": "offset"}
FIELDS = {name: f"${{metadata.{known}}}" for name, known in READ.items()}
STEPS: list[dict[str, Any]] = [
    {"type": "headersToPayload", "config": {"mappings": ["x:header"]}},
    {"type": "insertField", "config": {"fields": FIELDS}},
]


FORGETS = ("postgresql", "clickhouse")


def forget_metadata(system: System, written: Config) -> None:
    """Makes the table of rejected records one of an earlier version."""
    if isinstance(system, Postgresql):
        schema = written["table"].partition(".")[0]
        with psycopg.connect(system.dsn, autocommit=True) as connection:
            connection.execute(
                f"ALTER TABLE {schema}.dataflow_rejected DROP COLUMN metadata".encode()
            )
    elif isinstance(system, Clickhouse):
        system.client.command(f"ALTER TABLE {written['table']}_rejected DROP COLUMN metadata")


@pytest.mark.parametrize("kind", COLUMNS)
def test_steps_see_what_they_saw_before(
    request: pytest.FixtureRequest,
    kafka: devservers.Kafka,
    topic: Callable[..., str],
    tmp_path: Path,
    engine: SparkSession,
    kind: str,
) -> None:
    source, system = topic(1), SYSTEMS[kind](request)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    now = int(time.time() * 1000)

    def send(body: bytes) -> None:
        producer.produce(source, body, b"k", headers=[("x", b"1")], timestamp=now)
        assert producer.flush(20) == 0

    read = {"brokers": [kafka.bootstrap], "topic": source, "startingOffsets": "earliest"}
    number, text = COLUMNS[kind]
    columns = {"id": number} | dict.fromkeys(NAMES, text)
    written = system.at("sink", {"autoCreateTable": True, "columns": columns})

    ends = ("kafka", read), (kind, {**written, "unknownFields": "reject"})
    extra: dict[str, Any] = {"onRejected": "table", "maxRejectedPercent": 100}
    path = manifest(tmp_path, *ends, **extra, transformations=STEPS)

    def flow() -> Flow:
        return choose(load(path), None)

    send(b'{"id":1}')
    drained(flow())  # makes the table
    send(b'{"id":2,"more":1}')
    drained(flow())
    forget_metadata(system, written)
    send(b'{"id":3,"more":1}')
    drained(flow())
    assert [row["id"] for row in system.rows(written)] == [1]
    path.write_text(path.read_text().replace("unknownFields: reject", "unknownFields: ignore"))
    list(replay(flow(), lambda: engine, Run()))
    first, older, newer = sorted(system.rows(written), key=lambda row: row["id"])
    assert first["header"] == "1"
    assert {**newer, "id": 1, "offset": "0"} == first
    assert newer["offset"] == "2"
    lacks = kind in FORGETS
    assert (older["header"], older["offset"]) == (None if lacks else "1", "1")
