"""The documentation's manifests for the ClickHouse sink run as written, hosts and names aside."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.clickhouse import client
from dataflow_assets.contracts import Run
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from dataflow_assets.testing import choose
from tests import ROOT
from tests.conftest import Topics

SEEDS = ROOT / "examples" / "seeds"
WRITTEN = {
    "kafka-to-clickhouse.yaml": "clickhouse://default@clickhouse:9000/default",
    "clickhouse-sink.yaml": "clickhouse://default@clickhouse:9000/default?dial_timeout=10s",
}
Drain = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def stored(
    kafka: devservers.Kafka,
    topic: Topics,
    clickhouse: devservers.ClickHouse,
    database: str,
    engine: SparkSession,
    tmp_path: Path,
) -> Drain:
    def run(name: str, bodies: list[bytes], query: str) -> list[tuple[Any, ...]]:
        messages, producer = topic(1), Producer({"bootstrap.servers": kafka.bootstrap})
        for body in bodies:
            producer.produce(messages, body)
        assert producer.flush(30) == 0
        text = (SEEDS / name).read_text(encoding="utf-8")
        hosts = {
            "kafka:9092": kafka.bootstrap,
            "input-topic": messages,
            "dataflow-group": uuid.uuid4().hex,
            f'"{WRITTEN[name]}"': clickhouse.dsn(database),
        }
        for written, real in hosts.items():
            assert written in text
            text = text.replace(written, real)
        (tmp_path / name).write_text(text, encoding="utf-8")
        flow = choose(load([tmp_path / name]), None)
        list(drain(flow, lambda: engine, Request(Run(), patience=Patience(20, 0.01, 0.05))))
        with client.connect(clickhouse.dsn(database), "tests") as connected:
            return client.query_rows(connected, query)

    return run


def test_kafka_to_clickhouse(stored: Drain) -> None:
    bodies = [b'{"id": 1, "name": "a"}', b'{"id": 300, "tags": ["x"]}', b'{"id": 5000000000}']
    found = stored(
        "kafka-to-clickhouse.yaml", bodies, "select * except created_at from output_table"
    )
    assert sorted(found) == [(1, "a", None), (300, None, '["x"]'), (5_000_000_000, None, None)]


def test_the_section_s_sink(stored: Drain) -> None:
    bodies = [
        b'{"id": 1, "name": "new", "updated_at": "2026-07-02T00:00:00Z"}',
        b'{"id": 1, "name": "old", "updated_at": "2026-07-01T00:00:00Z"}',
        b'{"id": 2, "name": "b", "updated_at": "2026-07-01T00:00:00.5Z"}',
    ]
    query = "select id, name from output_table final order by id"
    assert stored("clickhouse-sink.yaml", bodies, query) == [(1, "new"), (2, "b")]
