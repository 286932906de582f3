"""Consumers that are assigned their partitions: they join no group and commit nothing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

from confluent_kafka import Consumer, KafkaException, TopicPartition

from dataflow_assets.connectors.kafka.client_errors import ClientErrors
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.shared_client import CLIENT
from dataflow_assets.errors import DataflowError, TransientError

SETTINGS = {
    "group.id": "dataflow-assets-peek",  # librdkafka wants one; nothing is ever stored for it
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    # A broker may say for a moment of a new record that its offset is out of range: the client
    # would go to the end of the log, in silence.
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 10,
    "fetch.message.max.bytes": 65536,  # a larger record still comes, alone
    "queued.max.messages.kbytes": 4096,
    "fetch.queue.backoff.ms": 10,  # a second, until the queue is looked at again, is the default
    "receive.message.max.bytes": 2**31 - 1,  # as Spark's reader, which takes any record
}
IDLE = 4  # consumers of a cluster that wait for the next look
KNOWN_SECONDS = 600.0  # how long a consumer knows a topic; the client itself forgets after 900
MEETING_SECONDS = 2.0


class Consumers:
    """Consumers of one cluster, shared by everybody in the process who looks at its topics.

    A look takes one, and puts it back for the next: connecting costs more than looking, and one for
    each topic would use up the threads of a process that looks at a hundred of them.
    """

    _lock = threading.Lock()
    _open: ClassVar[dict[tuple[object, ...], Consumers]] = {}

    def __init__(
        self, key: tuple[object, ...], cluster: Cluster, settings: Mapping[str, Any]
    ) -> None:
        self._key, self._cluster, self._settings = key, cluster, dict(settings)
        self._idle: list[Introduced] = []
        self.users = 0

    @classmethod
    def join(cls, cluster: Cluster, settings: Mapping[str, Any] = SETTINGS) -> Consumers:
        """Returns those of the cluster with these settings; whoever joins has to leave."""
        key = os.getpid(), cluster, *sorted(settings.items())
        with cls._lock:
            consumers = cls._open.setdefault(key, cls(key, cluster, settings))
            consumers.users += 1
            return consumers

    def leave(self) -> None:
        """The last one who leaves closes them."""
        with self._lock:
            self.users -= 1
            idle, self._idle = (self._idle, []) if self.users == 0 else ([], self._idle)
            if self.users == 0:
                self._open.pop(self._key, None)
        for one in idle:
            one.consumer.close()

    @property
    def is_denied(self) -> bool:
        """Returns whether the login of one that waits was refused: it would try again by itself."""
        with self._lock:
            return any(one.is_denied for one in self._idle)

    @contextmanager
    def assign(self, partitions: list[TopicPartition]) -> Iterator[Consumer]:
        """One that reads from there on; it is put back, and closed where enough of them wait."""
        with self._lock:
            one = self._idle.pop() if self._idle else None
        one = one or Introduced(self._cluster, self._settings)
        try:
            while one.consumer.poll(0) is not None:
                pass  # what it had to say since its last look was meant for others
            one.meet(partitions)
            one.consumer.assign(partitions)
            yield one.consumer
            one.consumer.unassign()
            one.note_answer()
        except BaseException as error:
            refused = one.refusal(error)
            one.consumer.close()
            if refused is not None:
                raise refused from error
            raise
        self._put_back(one)

    def _put_back(self, one: Introduced) -> None:
        with self._lock:
            keeps = self.users > 0 and len(self._idle) < IDLE
            if keeps:
                self._idle.append(one)
        if not keeps:
            one.consumer.close()


class Introduced:
    """A consumer, and since when it knows the leaders of which topics.

    Those of a topic that is new to it the client looks for but once a second; a question for
    offsets has it look at once, for all of them together.
    """

    def __init__(self, cluster: Cluster, settings: Mapping[str, Any]) -> None:
        self._client_errors = ClientErrors(cluster)
        own = {"error_cb": self._client_errors.hear}
        self.consumer = Consumer(CLIENT | dict(settings) | cluster.settings | own)
        self._met: dict[str, float] = {}

    @property
    def is_denied(self) -> bool:
        """Returns whether its login was refused since it was used last; only for one that waits."""
        self.consumer.poll(0)  # lets it call back
        return self._client_errors.is_denied

    def note_answer(self) -> None:
        """The cluster has answered: what it complained of before is over."""
        self._client_errors.forget()

    def refusal(self, error: BaseException) -> DataflowError | None:
        """The cause of an error: the cluster refuses the consumer; None where it does not."""
        if not isinstance(error, TransientError):
            return None
        meaning = self._client_errors.explain(error)
        return None if meaning is error else meaning

    def meet(self, partitions: Iterable[TopicPartition]) -> None:
        """Makes the topics known; what is wrong with one of them its reader finds out."""
        since = time.monotonic() - KNOWN_SECONDS
        self._met = {topic: at for topic, at in self._met.items() if at > since}
        new = [
            TopicPartition(one.topic, one.partition, 0)
            for one in partitions
            if one.topic not in self._met
        ]
        if not new:
            return
        with suppress(KafkaException):
            self.consumer.offsets_for_times(new, timeout=MEETING_SECONDS)
            self._met |= dict.fromkeys([one.topic for one in new], time.monotonic())
