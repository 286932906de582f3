"""Writes the head of a branch, each time in a transaction of its own, under one epoch.

A producer has threads and descriptors of its own. Two hundred open sessions write a head now and
then, so a process keeps the producers that were used last, and makes the others again when needed.
Whoever writes takes its producer out, so that nobody closes it meanwhile, and puts it back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from msgspec.structs import replace

from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.producer import Fenced, KafkaTransaction
from dataflow_assets.connectors.kafka.sink import checkpoint_records
from dataflow_assets.connectors.kafka.sink.checkpoint import CheckpointTopic
from dataflow_assets.connectors.kafka.sink.checkpoint_records import HEAD, KafkaHead, producer_of
from dataflow_assets.connectors.kafka.sink.key_spelling import CURRENT
from dataflow_assets.connectors.kafka.values import Outgoing
from dataflow_assets.contracts import Target

MOST = 8  # producers that a process keeps
_DRIVER_SECONDS = 10  # how long an open transaction of a dead driver holds up a look
_DRIVER = {
    "transaction.timeout.ms": _DRIVER_SECONDS * 1000,
    # The parts of a load of many tables are one record; a broker measures it compressed.
    "message.max.bytes": 1_000_000_000,
    "compression.type": "lz4",
}
_lock = threading.Lock()
_kept: dict[tuple[int, object], KafkaTransaction] = {}  # the one used last comes last


class HeadWriter:
    """One session's: it takes an epoch once, and then writes the heads of that epoch."""

    def __init__(self, cluster: Cluster, side_topic: CheckpointTopic, target: Target) -> None:
        self.epoch = 0
        """0 until an epoch is taken."""
        self._cluster, self._side_topic, self._target = cluster, side_topic, target
        self._closed = False

    def take(self, step: Callable[[KafkaHead], KafkaHead]) -> KafkaHead:
        """Takes a new epoch; the driver before can write no head from here on.

        `step` makes the head of that epoch of the one that is stored. Raises what
        `CheckpointTopic.head` and a transaction raise.
        """
        producer = self._take(producer_of(self._target))
        try:
            head = step(self._head())
        except BaseException:
            producer.close()
            raise
        self._write_with(producer, head)
        self.epoch = head.epoch
        return head

    def _head(self) -> KafkaHead:
        """Returns what is stored, or the first one of a new branch.

        Rejected records are taken back with the keys of their flow, which change when its topic is
        emptied.
        """
        head = self._side_topic.head() or KafkaHead(
            checkpoint_records.new_generation(), keys=CURRENT
        )
        flow = self._side_topic.replayed_head()
        return head if flow is None else replace(head, keys=flow.keys)

    def write(self, head: KafkaHead) -> None:
        """Stores the head. Raises TakenOver where another run has the branch by now."""
        assert not self._closed, "a session that was closed is used again"  # noqa: S101
        self._write_with(_take(self) or self._renew(), head)

    def end(self, partition: str) -> None:
        """Ends what a task of this source partition has left open; it cannot commit any more."""
        self._take(producer_of(self._target, partition)).close()

    def close(self) -> None:
        """Closes the producer, where it is kept; nothing can be written any more."""
        self._closed = True
        producer = _take(self)
        if producer is not None:
            producer.close()

    def _take(self, name: str) -> KafkaTransaction:
        return KafkaTransaction(self._cluster, name, _DRIVER)

    def _renew(self) -> KafkaTransaction:
        """Our producer again, which was closed for those of others.

        It would fence whoever has taken the branch over, so we look first; and again once nothing
        can be committed any more that was begun before.
        """
        self._side_topic.owned_head(self.epoch)
        producer = self._take(producer_of(self._target))
        try:
            self._side_topic.owned_head(self.epoch)
        except BaseException:
            producer.close()
            raise
        return producer

    def _write_with(self, producer: KafkaTransaction, head: KafkaHead) -> None:
        try:
            producer.begin()
            producer.send(Outgoing(self._side_topic.topic, checkpoint_records.dump(head), HEAD), 0)
            producer.commit()
        except BaseException as error:
            producer.close()
            if isinstance(error, Fenced) and self.epoch:
                self._side_topic.owned_head(self.epoch)  # says who has taken the flow over
            raise
        _give(self, producer)


def _take(writer: HeadWriter) -> KafkaTransaction | None:
    """The writer's producer, if it is still there."""
    with _lock:
        return _kept.pop((os.getpid(), writer), None)


def _give(writer: HeadWriter, producer: KafkaTransaction) -> None:
    """Keeps it for the writer's next head, and closes the one that waits longest."""
    with _lock:
        _kept[os.getpid(), writer] = producer
        mine = [key for key in _kept if key[0] == os.getpid()]  # a fork cannot end its parent's
        unused = [_kept.pop(key) for key in mine[:-MOST]]
    for one in unused:
        one.close()
