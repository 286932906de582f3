"""A record that a topic has refused has its headers when it is put back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.contracts import Run
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.replay import replay
from dataflow_assets.testing import choose
from tests.connectors.kafka.topics import committed
from tests.drained import drained
from tests.flows import manifest

HEADERS: list[tuple[str, str | bytes | None]] = [
    ("x", b"1"),
    ("x", b"2"),
    ("binary", b"\xff\x00\xfe"),
    ("null", None),
    ("empty", b""),
]


def allow(kafka: devservers.Kafka, topic: str, size: int) -> None:
    """Lets a topic take records of so many bytes."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(entry)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(20)


@pytest.mark.parametrize("steps", [[], [{"type": "filter", "config": {"condition": "$.id"}}]])
def test_headers_are_put_back_byte_for_byte(
    kafka: devservers.Kafka,
    topic: Callable[..., str],
    tmp_path: Path,
    engine: SparkSession,
    steps: list[Any],
) -> None:
    source, target = topic(1), topic(1, {"max.message.bytes": "2000"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    body = b'{"id":1,"v":"%s"}' % (b"y" * 5_000)
    producer.produce(source, body, b"key", headers=HEADERS)
    producer.produce(source, b'{"id":2}', b"key")
    assert producer.flush(20) == 0
    read = {"brokers": [kafka.bootstrap], "topic": source, "startingOffsets": "earliest"}
    write = {"brokers": [kafka.bootstrap], "topic": target}
    extra: dict[str, Any] = {
        "onRejected": "table",
        "maxRejectedPercent": 100,
        "transformations": steps,
    }
    flow = choose(load(manifest(tmp_path, ("kafka", read), ("kafka", write), **extra)), None)
    drained(flow)
    assert [one.value() for one in committed(kafka.bootstrap, target)] == [b'{"id":2}']
    allow(kafka, target, 20_000)
    list(replay(flow, lambda: engine, Run()))
    (again,) = [one for one in committed(kafka.bootstrap, target) if one.value() == body]
    assert (again.key(), again.headers()) == (b"key", HEADERS)
