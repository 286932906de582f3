"""A look at the first records of some positions, without consuming anything."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from dataflow_assets.connectors.kafka.broker import CLIENT

SETTINGS = {
    "group.id": "dataflow-assets-peek",  # librdkafka wants one; nothing is ever stored for it
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 10,
    "fetch.message.max.bytes": 65536,  # a larger record still comes, alone
    "queued.max.messages.kbytes": 4096,
}
MOST = 500  # records of one gulp


@dataclass(frozen=True)
class Seen:
    """One record: milliseconds since 1970 (negative: unknown) and its size."""

    timestamp: int
    size: int


class Peek:
    """A consumer that is kept warm and reads nothing between two looks."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer(CLIENT | SETTINGS | {"bootstrap.servers": bootstrap})

    def look(self, positions: Mapping[int, int], seconds: float) -> dict[int, list[Seen]]:
        """A few records from each position on; fewer, or none, where the time or the log ends."""
        if not positions:
            return {}
        self._consumer.assign([TopicPartition(self._topic, p, o) for p, o in positions.items()])
        try:
            return self._gather(set(positions), time.monotonic() + seconds)
        finally:
            self._consumer.unassign()

    def _gather(self, awaited: set[int], deadline: float) -> dict[int, list[Seen]]:
        found: dict[int, list[Seen]] = {partition: [] for partition in awaited}
        while awaited and (left := deadline - time.monotonic()) > 0:
            first = self._consumer.poll(left)
            for message in [*([first] if first else []), *self._consumer.consume(MOST, 0.002)]:
                partition = _partition(message)
                if message.error() is None:
                    found[partition].append(_seen(message))
                if partition >= 0:
                    awaited.discard(partition)
        return found

    def close(self) -> None:
        """Frees the connection; safe twice."""
        self._consumer.close()


def _partition(message: Message) -> int:
    """The partition that has answered; -1 for an error that has nothing to do with one."""
    error = message.error()
    number = message.partition()
    at_end = error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001
    return number if number is not None and (error is None or at_end) else -1


def _seen(message: Message) -> Seen:
    return Seen(message.timestamp()[1], len(message))
