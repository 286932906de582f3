"""A look at the first records of some positions, without consuming anything.

The consumer is assigned its partitions: it joins no group and commits nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from dataflow_assets.connectors.kafka.broker import CLIENT
from dataflow_assets.contracts import MESSAGES
from dataflow_assets.errors import TransientError

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
SILENCE = 10.0  # seconds without an answer after which there will be none
_SCHEMA = pa.schema(
    [
        ("_at", pa.int64()),
        ("body", pa.binary()),
        ("key", pa.binary()),
        ("timestamp", pa.timestamp("us", "UTC")),
        MESSAGES.field("headers"),
    ]
)


@dataclass(frozen=True)
class Seen:
    """One record: milliseconds since 1970 (negative: unknown) and its size."""

    timestamp: int
    size: int


class Peek:
    """A consumer that is kept warm and reads nothing between two looks."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic, self._bootstrap = topic, bootstrap
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

    def read(self, positions: Mapping[int, int], most: int) -> dict[int, list[Message]]:
        """At most `most` whole records from each position on; fewer where the log ends."""
        found: dict[int, list[Message]] = {partition: [] for partition in positions}
        if not positions or most < 1:
            return found
        self._consumer.assign([TopicPartition(self._topic, p, o) for p, o in positions.items()])
        try:
            self._fill(found, most)
        finally:
            self._consumer.unassign()
        return {partition: messages[:most] for partition, messages in found.items()}

    def all(self, partition: int) -> Iterator[Message]:
        """Every record of a partition, up to the first that is not decided yet."""
        self._consumer.assign([TopicPartition(self._topic, partition, OFFSET_BEGINNING)])
        try:
            for message in self._answers():
                error = message.error()
                if error is not None and _partition(message) == partition:
                    return
                if error is not None:
                    raise TransientError(f"kafka {self._bootstrap}: reading {self._topic}: {error}")
                yield message
        finally:
            self._consumer.unassign()

    def _fill(self, found: dict[int, list[Message]], most: int) -> None:
        """Reads until each partition has `most` records or has come to its end."""
        awaited = set(found)
        for message in self._answers():
            partition, error = _partition(message), message.error()
            if partition < 0:
                sentence = f"kafka {self._bootstrap}: reading {self._topic}: {error}"
                raise TransientError(sentence)
            found[partition] += [] if error else [message]
            if error or len(found[partition]) >= most:
                awaited.discard(partition)
            if not awaited:
                return

    def _answers(self) -> Iterator[Message]:
        while first := self._consumer.poll(SILENCE):
            yield first
            yield from self._consumer.consume(MOST, 0.002)
        raise TransientError(
            f"kafka {self._bootstrap}: reading {self._topic}: no answer for {SILENCE:g} seconds"
        )

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


def as_batch(messages: Sequence[Message]) -> pa.RecordBatch:
    """The columns in which Spark would deliver these records."""
    rows = [
        {
            "_at": message.offset(),
            "body": message.value(),
            "key": message.key(),
            "timestamp": message.timestamp()[1] * 1000,
            "headers": [{"key": one[0], "value": one[1]} for one in message.headers() or ()],
        }
        for message in messages
    ]
    return pa.RecordBatch.from_pylist(rows, _SCHEMA)
