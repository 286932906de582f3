"""Looks at the first records of some positions."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

import devservers
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.peek import Peek
from dataflow_assets.errors import TransientError
from tests.conftest import Topics


@pytest.fixture
def peek(kafka: devservers.Kafka, topic: Topics) -> Iterator[Peek]:
    """A look at a topic with one record."""
    found = Peek(Cluster(kafka.bootstrap), topic())
    send(kafka, found)
    yield found
    found.close()


def send(kafka: devservers.Kafka, peek: Peek, records: int = 1) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for _ in range(records):
        producer.produce(peek._topic, b"{}", partition=0)
    assert producer.flush(20) == 0


def test_an_offset_that_the_broker_does_not_have_is_no_end_of_the_log(peek: Peek) -> None:
    """A broker says so for a moment of records that are new to it, however old they are."""
    assert peek.look({0: 5}, 0.5) == {}
    with pytest.raises(TransientError, match="out of range"):
        peek.read({0: 5}, 1)
    with pytest.raises(TransientError, match="out of range"):
        list(peek.records(0, 5))


def test_a_look_goes_on_once_the_broker_has_the_offset(kafka: devservers.Kafka, peek: Peek) -> None:
    later = threading.Timer(0.2, send, (kafka, peek, 5))
    later.start()
    assert len(peek.look({0: 5}, 60.0)[0]) == 1
    later.join()
