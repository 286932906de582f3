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
from tests.drained import drain_apart, follow_apart

pytestmark = [pytest.mark.heavy, pytest.mark.crash]

PARTITIONS, EACH = 4, 2_500


def produce(server: devservers.Kafka, topic: str, low: int, high: int) -> None:
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": server.bootstrap, "compression.type": "zstd", "log_level": 0}
    # Without idempotence a batch that is sent again comes behind later ones: the order is tested.
    producer = Producer({**settings, "enable.idempotence": True})
    for number in range(low, high):
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d %d" % (partition, number), b"k", partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


def mirror(folder: Path, server: devservers.Kafka, topic: str) -> Flow:
    config = mirroring(server, topic)
    reading = source(folder, "MirrorSourceConnector", config, tasksMax=PARTITIONS, heap="256m")
    return Flow(folder, reading, maxRecordsPerBatch=2_000)


@pytest.mark.parametrize(
    ("failpoint", "ends"),
    [
        ("connect.sealed:kill:3", {0, 1}),
        pytest.param("files.staged:kill:4", {-signal.SIGKILL}, marks=pytest.mark.full),
    ],
)
def test_each_record_once(
    failpoint: str,
    ends: set[int],
    kafka: devservers.Kafka,
    topic: Callable[[int], str],
    tmp_path: Path,
) -> None:
    """The driver may start the connector's process that was killed again, or end with an error."""
    name = topic(PARTITIONS)
    produce(kafka, name, 0, EACH)
    flow = mirror(tmp_path, kafka, name)
    assert follow_apart(flow.manifest, PARTITIONS * EACH, failpoint) in ends
    produce(kafka, name, EACH, EACH + 500)
    assert follow_apart(flow.manifest, PARTITIONS * (EACH + 500)) == 0
    assert drain_apart(flow.manifest) == 0  # nothing comes behind that
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
