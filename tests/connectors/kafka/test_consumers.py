"""Consumers that are used again: topics that are new to one of them hold nothing up."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import devservers
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.consumers import Consumers
from tests.conftest import Topics

TOPICS = 6


@pytest.fixture
def consumers(kafka: devservers.Kafka) -> Iterator[Consumers]:
    consumers = Consumers.join(Cluster(kafka.bootstrap))
    yield consumers
    consumers.leave()


def test_a_consumer_reads_of_topics_that_it_has_never_seen_at_once(
    kafka: devservers.Kafka, topic: Topics, consumers: Consumers
) -> None:
    """By itself librdkafka looks for the leaders of new topics a second after the last look."""
    names = [topic() for _ in range(TOPICS)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for name in names:
        producer.produce(name, b"{}")
    assert producer.flush(30) == 0
    seconds = []
    for name in names:
        with consumers.assign([TopicPartition(name, 0, 0)]) as consumer:
            began = time.monotonic()
            assert _first(consumer) == name
            seconds.append(time.monotonic() - began)
    assert sorted(seconds)[TOPICS // 2] < 0.3, seconds


def _first(consumer: Consumer) -> str | None:
    while (message := consumer.poll(10)) is not None and message.error() is not None:
        pass
    return None if message is None else message.topic()
