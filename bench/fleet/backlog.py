"""Messages that wait: sent in one transaction, so that they appear all at once, when we say so.

Until the transaction is committed no flow sees them, and the fleet can settle first. One message
is there from the start, so that their flow has begun as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from bench.fleet.messages import body

BATCH = 50_000
OPEN_MS = 900_000  # the longest transaction that brokers allow


class Backlog:
    """An open transaction with so many messages."""

    def __init__(self, producer: Producer, count: int) -> None:
        self._producer = producer
        self.count = count

    def appear(self) -> None:
        """All of them are there."""
        self._producer.commit_transaction(60)


@contextmanager
def backlog(bootstrap: str, topic: str, count: int) -> Iterator[Backlog]:
    """Sends them; what has not appeared at the end never will. `count` is that of all messages."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"backlog-{topic}",
            "transaction.timeout.ms": OPEN_MS,
            "log_level": 3,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 4 * BATCH,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    _send(producer, topic, range(1))
    producer.commit_transaction(60)
    producer.begin_transaction()
    for first in range(1, count, BATCH):
        _send(producer, topic, range(first, min(first + BATCH, count)))
    producer.flush()
    yield Backlog(producer, count)


def _send(producer: Producer, topic: str, numbers: range) -> None:
    batch = [{"value": body(number, time.time())} for number in numbers]
    while len(producer) + len(batch) > 4 * BATCH:
        producer.poll(0.01)
    sent = producer.produce_batch(topic, batch, partition=0)
    assert sent == len(batch), "the producer's queue is too short"
