"""What stands in a topic for readers of committed records, once nothing is on its way any more."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.create_topic import TopicAdmin

PATIENCE = 30.0


def committed(bootstrap: str, topic: str) -> list[Message]:
    """All committed records, partition by partition; none where there is no topic."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "dataflow-tests",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 10,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        found = consumer.list_topics(topic, timeout=10).topics[topic]
        highs = TopicAdmin(Cluster(bootstrap), topic).highs(found.partitions)
        return [m for p, high in highs.items() for m in _partition(consumer, topic, p, high)]
    finally:
        consumer.close()


def _partition(consumer: Consumer, topic: str, partition: int, high: int) -> Iterator[Message]:
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    deadline, reached = time.monotonic() + PATIENCE, 0
    while reached < high:
        assert time.monotonic() < deadline, f"{topic} {partition}: a transaction is still open"
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error():
            reached = message.offset() or 0
        else:
            yield message
