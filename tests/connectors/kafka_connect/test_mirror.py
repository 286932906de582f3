"""MirrorSourceConnector with four tasks over four partitions: each record once, and in order."""

from __future__ import annotations

import base64
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

import devservers
from tests.connectors.kafka_connect.driver import Flow, mirroring, source
from tests.drained import drain_apart

pytestmark = [pytest.mark.heavy, pytest.mark.crash]

PARTITIONS, EACH = 4, 5_000


def produce(server: devservers.Kafka, topic: str, low: int, high: int) -> None:
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": server.bootstrap, "compression.type": "zstd", "log_level": 0}
    producer = Producer(settings)
    for number in range(low, high):
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d %d" % (partition, number), b"k", partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


def mirror(folder: Path, server: devservers.Kafka, topic: str) -> Flow:
    config = mirroring(server, topic)
    reading = source(folder, "MirrorSourceConnector", config, tasksMax=PARTITIONS, heap="256m")
    return Flow(folder, reading, maxRecordsPerBatch=2_000)


@pytest.mark.parametrize("failpoint", ["connect.sealed:kill:3", "files.staged:kill:4"])
def test_each_record_once(
    failpoint: str, kafka: devservers.Kafka, topic: Callable[[int], str], tmp_path: Path
) -> None:
    name = topic(PARTITIONS)
    produce(kafka, name, 0, EACH)
    flow = mirror(tmp_path, kafka, name)
    killed = drain_apart(flow.manifest, failpoint=failpoint)
    assert killed == -signal.SIGKILL or failpoint.startswith("connect")
    produce(kafka, name, EACH, EACH + 500)
    for _ in range(5):  # on a busy machine a task may have nothing for the seconds that end a run
        assert drain_apart(flow.manifest) == 0
        if len(flow.rows) >= PARTITIONS * (EACH + 500):
            break
    found: dict[int, list[int]] = defaultdict(list)
    for row in flow.rows:
        partition, number = map(int, base64.b64decode(row["record"]).split())
        found[partition].append(number)
    assert {p: numbers == list(range(EACH + 500)) for p, numbers in found.items()} == dict.fromkeys(
        range(PARTITIONS), True
    ), {p: _wrong(numbers) for p, numbers in found.items()}


def _wrong(numbers: list[int]) -> tuple[int, int, bool]:
    """How many are missing, how many doubled, and whether they are in their order."""
    distinct = len(set(numbers))
    return EACH + 500 - distinct, len(numbers) - distinct, numbers == sorted(numbers)
