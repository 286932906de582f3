"""What stands in a topic for readers of committed records, once nothing is on its way any more."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)

from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.create_topic import TopicAdmin

PATIENCE = 30.0
AT_ONCE = {"fetch.wait.max.ms": 10}
"""Settings of a reader that waits at no end of a log."""


def committed(bootstrap: str, topic: str) -> list[Message]:
    """All committed records, partition by partition; none where there is no topic."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "dataflow-tests",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "log_level": 0,
    }
    consumer = Consumer(settings | AT_ONCE)
    try:
        found = consumer.list_topics(topic, timeout=10).topics[topic]
        highs = TopicAdmin(Cluster(bootstrap), topic).highs(found.partitions)
        return _read(consumer, topic, highs)
    finally:
        consumer.close()


def meet(consumer: Consumer, topic: str, partitions: Iterable[int]) -> None:
    """Has a new consumer look for the leaders now, which it does once a second by itself."""
    with suppress(KafkaException):  # what is wrong its reader finds out
        consumer.offsets_for_times([TopicPartition(topic, p, 0) for p in partitions], timeout=10)


def _read(consumer: Consumer, topic: str, highs: Mapping[int, int]) -> list[Message]:
    if not highs:
        return []
    meet(consumer, topic, highs)
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in highs])
    found: dict[int, list[Message]] = {p: [] for p in sorted(highs)}
    reached = dict.fromkeys(highs, 0)
    deadline = time.monotonic() + PATIENCE
    while open_ := [p for p, high in highs.items() if reached[p] < high]:
        assert time.monotonic() < deadline, f"{topic} {open_}: a transaction is still open"
        message = consumer.poll(0.1)
        if message is None:
            continue
        partition = message.partition() or 0
        if message.error():
            reached[partition] = message.offset() or 0
        else:
            found[partition].append(message)
    return [message for each in found.values() for message in each]
