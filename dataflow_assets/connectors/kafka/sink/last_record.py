"""The last record of a partition, as it stands once every transaction before it is decided.

Transactions end in two steps: the coordinator decides, then the markers are written. A commit that
has returned may not be visible yet, and a reader of committed records stops before it. Hence what
counts is not the end that a consumer sees but the next offset of the log, taken before reading.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakValueDictionary

from confluent_kafka import OFFSET_BEGINNING, KafkaError, Message, TopicPartition

from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.consumers import SETTINGS, Introduced
from dataflow_assets.connectors.kafka.create_topic import TopicAdmin
from dataflow_assets.connectors.kafka.errors import MISSING, is_of_the_group, meaning
from dataflow_assets.errors import DataflowError, TransientError

TAIL = 16  # offsets looked at first: a record and its marker, and a few that came to nothing
_TAIL = -2000  # librdkafka's OFFSET_TAIL: so many before the end
BACK = 128  # offsets looked at first where many topics are, with transactions come to nothing
SILENCE = 10.0  # seconds without an answer after which there will be none
MOST = 8  # consumers of a cluster at once; who comes later waits
IDLE = 4  # of them that wait for the next look
PATIENCE = 60.0  # seconds in which one becomes free
_OVER = {KafkaError._PARTITION_EOF, *MISSING}  # noqa: SLF001 - so it is called


@dataclass(frozen=True)
class Last:
    """The last committed record's value; None where there is none."""

    value: bytes | None = None
    settled: bool = True
    """False: a transaction is still open before the end of the log."""


class LastRecordReader:
    """A consumer that is kept warm and joins no group."""

    def __init__(self, cluster: Cluster) -> None:
        self._bootstrap = cluster.bootstrap
        self._introduced = Introduced(cluster, SETTINGS | {"auto.offset.reset": "earliest"})
        self._consumer = self._introduced.consumer

    def last(
        self, admin: TopicAdmin, partitions: Iterable[int], patience: float
    ) -> dict[int, Last]:
        """Of each partition; waits so long for open transactions to end."""
        deadline = time.monotonic() + patience
        highs = admin.highs(partitions)
        found = {p: Last() for p, high in highs.items() if high == 0}
        tail = TAIL
        while left := {p: high for p, high in highs.items() if p not in found}:
            begins = {p: max(0, high - tail) for p, high in left.items()}
            seen = self._read(admin.name, begins, left, deadline)
            found |= {p: one for p, one in seen.items() if one.value or not begins[p]}
            tail *= 32
        return found

    def heads(self, topics: Iterable[str]) -> dict[str, bytes]:
        """The last committed values of partition 0 of many topics, read side by side.

        A topic is left out that is gone by now, or has no record. Raises what keeps another one
        from being read: nobody may take it for one without a head.
        """
        wanted = set(topics)
        found = self._heads(set(wanted), _TAIL - BACK)
        return found | self._heads(wanted - found.keys(), OFFSET_BEGINNING)

    def _heads(self, awaited: set[str], begin: int) -> dict[str, bytes]:
        found = dict[str, bytes]()
        self._assign([TopicPartition(name, 0, begin) for name in awaited])
        try:
            silent = time.monotonic() + SILENCE
            while awaited:
                message = self._consumer.poll(0.05)
                if message is not None:
                    silent = time.monotonic() + SILENCE
                    self._note(message, awaited, found)
                elif time.monotonic() > silent:
                    raise self._silence(", ".join(sorted(awaited)))
        finally:
            self._consumer.unassign()
        return found

    def _note(self, message: Message, awaited: set[str], found: dict[str, bytes]) -> None:
        topic, value, error = message.topic() or "", message.value(), message.error()
        if error is None:
            found |= {} if value is None else {topic: value}
        elif error.code() in _OVER:
            awaited.discard(topic)
        elif topic in awaited:
            where = f"kafka {self._bootstrap}: reading checkpoints of other flows in {topic}"
            raise meaning(error, where)

    def close(self) -> None:
        self._consumer.close()

    def _read(
        self, topic: str, begins: Mapping[int, int], highs: Mapping[int, int], deadline: float
    ) -> dict[int, Last]:
        self._assign([TopicPartition(topic, p, at) for p, at in begins.items()])
        try:
            return self._gather(topic, highs, deadline)
        finally:
            self._consumer.unassign()

    def _assign(self, partitions: list[TopicPartition]) -> None:
        self._introduced.meet(partitions)
        self._consumer.assign(partitions)

    def _gather(self, topic: str, highs: Mapping[int, int], deadline: float) -> dict[int, Last]:
        values: dict[int, bytes | None] = dict.fromkeys(highs)
        reached = dict.fromkeys(highs, -1)
        silent = time.monotonic() + SILENCE
        while open_ := {p for p, high in highs.items() if reached[p] < high}:
            message = self._consumer.poll(0.05)
            now = time.monotonic()
            if message is None and now > deadline and all(reached[p] >= 0 for p in open_):
                break
            if message is not None:
                silent = now + SILENCE
                self._take(message, values, reached)
            elif now > silent:
                raise self._silence(topic)
        return {p: Last(value, reached[p] >= highs[p]) for p, value in values.items()}

    def _take(
        self, message: Message, values: dict[int, bytes | None], reached: dict[int, int]
    ) -> None:
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is None:
            values[partition] = message.value()  # type: ignore[index]
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - so it is called
            reached[partition] = offset  # type: ignore[index,assignment]
        elif not is_of_the_group(error):
            raise meaning(error, f"kafka {self._bootstrap}: reading checkpoints")

    def _silence(self, topic: str) -> DataflowError:
        silence = TransientError(
            f"kafka {self._bootstrap}: reading {topic}: no answer for {SILENCE:g} seconds"
        )
        return self._introduced.refusal(silence) or silence


class Readers:
    """The readers of a cluster, lent for one look each: threads cannot share one.

    They end with the last one who holds these.
    """

    _lock = threading.Lock()
    _open: ClassVar[WeakValueDictionary[tuple[int, Cluster], Readers]] = WeakValueDictionary()

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._idle: list[LastRecordReader] = []
        self._room = threading.BoundedSemaphore(MOST)

    @classmethod
    def of(cls, cluster: Cluster) -> Readers:
        """Returns those of this process: a forked one cannot use its parent's."""
        key = (os.getpid(), cluster)
        with cls._lock:
            found = cls._open.get(key)
            if found is None:
                found = cls._open[key] = cls(cluster)
            return found

    @contextmanager
    def lend(self) -> Iterator[LastRecordReader]:
        """One that was used before, if there is one; after an error it is closed."""
        if not self._room.acquire(timeout=PATIENCE):
            raise TransientError(
                f"kafka {self._cluster.bootstrap}: {MOST} looks at checkpoints have gone on for "
                f"{PATIENCE:g} seconds"
            )
        try:
            with self._lock:
                reader = self._idle.pop() if self._idle else None
            reader = reader or LastRecordReader(self._cluster)
            try:
                yield reader
            except BaseException:
                reader.close()
                raise
            self._put_back(reader)
        finally:
            self._room.release()

    def _put_back(self, reader: LastRecordReader) -> None:
        with self._lock:
            keeps = len(self._idle) < IDLE
            if keeps:
                self._idle.append(reader)
        if not keeps:
            reader.close()
