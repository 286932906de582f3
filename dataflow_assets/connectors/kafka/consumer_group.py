"""Stored offsets of a consumer group, asked for by a client that never joins it.

A consumer asks, not the admin client: where the group's coordinator is not ready yet, librdkafka
handles the admin client's answer as a group's and ends the process with a segmentation fault.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from dataflow_assets.connectors.kafka.errors import code, is_of_the_group

log = logging.getLogger(__name__)

CLOSE_SECONDS = 4.0  # how long `close` waits for offsets on their way
REFUSED_SECONDS = 1.0  # within which it is known that the client may not ask
SETTINGS: dict[str, Any] = {
    "enable.auto.commit": False,
    # Nobody joins the group, so this is only how long librdkafka keeps offsets for a coordinator
    # that does not come: its 45 s would hold up every retry while the cluster is down.
    "session.timeout.ms": 3000,
    "heartbeat.interval.ms": 1000,
}

_UNKNOWN = -1  # the protocol's epoch of a leader that nobody has told


@dataclass(frozen=True)
class KafkaCommitted:
    """A consumer group's entry for one partition."""

    offset: int
    metadata: str
    epoch: int | None = None
    """Of the partition's leader when the offset was stored, where that was told."""


class KafkaGroup:
    """Reads and stores offsets. Storing is begun, never waited for; a refusal is logged once."""

    def __init__(
        self, settings: Mapping[str, Any], group: str, refusals: set[str] | None = None
    ) -> None:
        self._name = group
        self._awaited: Counter[str] = Counter()  # answers, by topic
        self._refusals = set() if refusals is None else refusals
        own = {"group.id": group, "on_commit": self._note_stored}
        self._consumer = Consumer({**settings, **SETTINGS, **own})

    def committed_offsets(
        self, topic: str, partitions: Iterable[int], seconds: float
    ) -> dict[int, KafkaCommitted]:
        """Returns offsets by partition; partitions without an offset are left out.

        Raises:
            KafkaException: no answer, or none about one of the partitions: taken for one without an
                offset, the flow would read it from its beginning. A missing right is one of its
                own: nobody answers then, and librdkafka would ask for ever.
        """
        places = [TopicPartition(topic, number) for number in partitions]
        try:
            answers = self._answer(places, REFUSED_SECONDS)
        except KafkaException as error:
            if code(error) != KafkaError._TIMED_OUT:  # noqa: SLF001 - so it is called
                raise
            answers = self._answer(places, seconds)
        for failed in (one.error for one in answers if one.error is not None):
            raise KafkaException(failed)
        return {
            one.partition: KafkaCommitted(one.offset, one.metadata or "", _epoch(one))
            for one in answers
            if one.offset >= 0
        }

    def _answer(self, asked: list[TopicPartition], seconds: float) -> list[TopicPartition]:
        """Raises the group's refusal where there is one: the answer itself only fails to come."""
        try:
            return self._consumer.committed(asked, timeout=seconds)
        except KafkaException as error:
            beside = self._consumer.poll(0)
            refusal = None if beside is None else beside.error()
            if is_of_the_group(refusal):
                raise KafkaException(refusal) from error
            raise

    def commit(
        self, topic: str, offsets: Mapping[int, int], mark: str, epochs: Mapping[int, int]
    ) -> None:
        """Begins to store offsets with the mark as their metadata, and the leaders' epochs."""
        positions = [
            TopicPartition(topic, p, o, mark, epochs.get(p, _UNKNOWN)) for p, o in offsets.items()
        ]
        self._awaited[topic] += 1
        self._consumer.commit(offsets=positions, asynchronous=True)
        self._consumer.poll(0)  # serves the answers to earlier ones

    def close(self) -> None:
        """Waits a while for the answers and frees the connection; safe twice."""
        deadline = time.monotonic() + CLOSE_SECONDS
        while self._awaited.total() and time.monotonic() < deadline:
            self._consumer.poll(0.05)
        self._awaited.clear()
        self._consumer.close()

    def waits_for(self, topic: str) -> bool:
        """True while answers about a topic are on their way; serves those that have come."""
        self._consumer.poll(0)
        return self._awaited[topic] > 0

    def give_up(self, topic: str) -> None:
        """Waits for no answers about a topic any more."""
        del self._awaited[topic]

    def _note_stored(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        for topic in {each.topic for each in positions}:
            self._awaited[topic] = max(0, self._awaited[topic] - 1)
        refused = [error] if error else [each.error for each in positions if each.error]
        if not refused:
            return
        names = ", ".join(sorted({each.topic for each in positions}))
        sentence = f"topic {names}: offsets of {self._name} were not stored: {refused[0]}"
        if sentence not in self._refusals:
            log.warning("%s", sentence)
            self._refusals.add(sentence)


def _epoch(found: TopicPartition) -> int | None:
    epoch: int | None = found.leader_epoch
    return None if epoch is None or epoch < 0 else epoch
