"""A look at the first records of some positions, without consuming anything.

The consumer is assigned its partitions: it joins no group and commits nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.consumers import Consumers
from dataflow_assets.connectors.kafka.errors import is_of_the_group, meaning
from dataflow_assets.connectors.kafka.headers import headers
from dataflow_assets.contracts import MESSAGES
from dataflow_assets.errors import TransientError

MOST = 500  # records of one gulp
Where = tuple[str, int]
"""A topic and one of its partitions."""
_OUT_OF_RANGE = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - so is the client's own error called
SILENCE = 10.0  # seconds without an answer after which there will be none
SCHEMA = pa.schema(
    [
        ("_at", pa.int64()),
        ("body", pa.binary()),
        ("key", pa.binary()),
        ("timestamp", pa.timestamp("us", "UTC")),
        MESSAGES.field("headers"),
    ]
)


@dataclass(frozen=True)
class KafkaSeen:
    """One record: milliseconds since 1970 (negative: unknown) and its size."""

    timestamp: int
    size: int


class Peek:
    """Looks at one topic; between two looks nothing is read."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic, self._where = topic, f"kafka {cluster.bootstrap}: reading {topic}"
        self._consumers: Consumers | None = Consumers.join(cluster)

    @contextmanager
    def _reading(self, places: Mapping[Where, int]) -> Iterator[Consumer]:
        assert self._consumers is not None, "closed"  # noqa: S101 - a mistake of ours
        partitions = [TopicPartition(*where, offset) for where, offset in places.items()]
        with self._consumers.assign(partitions) as consumer:
            yield consumer

    def look(self, positions: Mapping[int, int], seconds: float) -> dict[int, list[KafkaSeen]]:
        """A few records from each position on; none where the log ends.

        A partition that has not answered in time is left out.
        """
        seen = self.look_at(self._places(positions), seconds)
        return {partition: records for (_, partition), records in seen.items()}

    def look_at(self, places: Mapping[Where, int], seconds: float) -> dict[Where, list[KafkaSeen]]:
        """Looks at any topics of the cluster, all of them together."""
        if not places:
            return {}
        with self._reading(places) as consumer:
            return _gather(consumer, places, time.monotonic() + seconds)

    def read(self, positions: Mapping[int, int], most: int) -> dict[int, list[Message]]:
        """At most `most` whole records from each position on; fewer where the log ends."""
        by_partition: dict[int, list[Message]] = {partition: [] for partition in positions}
        if not positions or most < 1:
            return by_partition
        with self._reading(self._places(positions)) as consumer:
            self._fill(consumer, by_partition, most)
        return {partition: messages[:most] for partition, messages in by_partition.items()}

    def records(
        self, partition: int, first: int = OFFSET_BEGINNING, last: int | None = None
    ) -> Iterator[Message]:
        """The records from offset `first` to `last`, or up to the first that is not decided yet.

        The consumer is kept for the next look where the caller reads on to the end.
        """
        with self._reading(self._places({partition: first})) as consumer:
            for message in self._answers(consumer):
                error = message.error()
                if error is not None and _partition(message) == partition:
                    return
                if error is not None:
                    raise meaning(error, self._where)
                yield message
                if last is not None and (message.offset() or 0) >= last:
                    return

    def _fill(self, consumer: Consumer, found: dict[int, list[Message]], most: int) -> None:
        """Reads until each partition has `most` records or has come to its end."""
        awaited = set(found)
        for message in self._answers(consumer):
            partition, error = _partition(message), message.error()
            if error is not None and partition < 0:
                raise meaning(error, self._where)
            found[partition] += [] if error else [message]
            if error or len(found[partition]) >= most:
                awaited.discard(partition)
            if not awaited:
                return

    def _answers(self, consumer: Consumer) -> Iterator[Message]:
        # A message without a value has the length 0, which counts as false.
        while (first := consumer.poll(SILENCE)) is not None:
            messages = [first, *consumer.consume(MOST, 0.002)]
            yield from (one for one in messages if not is_of_the_group(one.error()))
        raise TransientError(f"{self._where}: no answer for {SILENCE:g} seconds")

    def _places(self, positions: Mapping[int, int]) -> dict[Where, int]:
        return {(self._topic, partition): offset for partition, offset in positions.items()}

    def close(self) -> None:
        """Gives its share of the consumers up; safe twice."""
        consumers, self._consumers = self._consumers, None
        if consumers is not None:
            consumers.leave()


def _gather(
    consumer: Consumer, places: Mapping[Where, int], deadline: float
) -> dict[Where, list[KafkaSeen]]:
    seen: dict[Where, list[KafkaSeen]] = {where: [] for where in places}
    awaited = set(places)
    while awaited and (left := deadline - time.monotonic()) > 0:
        first = consumer.poll(left)
        for message in [*([] if first is None else [first]), *consumer.consume(MOST, 0.002)]:
            where, error = (message.topic() or "", _partition(message)), message.error()
            if error is None:
                seen[where].append(KafkaSeen(message.timestamp()[1], len(message)))
            elif error.code() == _OUT_OF_RANGE:
                where = message.topic() or "", message.partition() or 0
                consumer.incremental_unassign([TopicPartition(*where)])
                consumer.incremental_assign([TopicPartition(*where, places[where])])
                continue
            awaited.discard(where)
    return {where: records for where, records in seen.items() if where not in awaited}


def _partition(message: Message) -> int:
    """The partition that has answered; -1 for an error that has nothing to do with one."""
    error = message.error()
    number = message.partition()
    at_end = error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001
    return number if number is not None and (error is None or at_end) else -1


def as_batch(messages: Sequence[Message]) -> pa.RecordBatch:
    """The columns in which Spark would deliver these records."""
    rows = [
        {
            "_at": message.offset(),
            "body": message.value(),
            "key": message.key(),
            "timestamp": message.timestamp()[1] * 1000,
            "headers": [{"key": name, "value": value} for name, value in headers(message)],
        }
        for message in messages
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)
