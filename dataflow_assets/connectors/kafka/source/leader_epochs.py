"""Detects logs that were cut off below a position: leader epochs tell (KIP-320).

A replica that was behind may become leader (unclean election), or a broker may come back without
what it had not written to disk: the end of the log is cut off. Once the log has grown past the
position again, offsets alone look sound. Every leader has an epoch of its own, though, and a broker
knows at which offset the records of an epoch end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, TopicPartition

from dataflow_assets.connectors.kafka.client import KafkaBounds
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.consumer_group import KafkaCommitted
from dataflow_assets.connectors.kafka.consumers import SETTINGS
from dataflow_assets.connectors.kafka.shared_client import CLIENT
from dataflow_assets.errors import TransientError

SILENCE = 8.0  # seconds without an answer after which there will be none
_OWN = {"auto.offset.reset": "error", "isolation.level": "read_uncommitted"}
_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - so are the client's own errors called
_RESET = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001
# The code says only that the position is no good, as of one that has expired meanwhile.
_CUT = re.compile(r"log truncation detected(.*broker end offset is (?P<kept>\d+))?")


@dataclass(frozen=True)
class SeenEpoch:
    """Positions of one partition from `first` to `last`, known under a leader of this epoch."""

    first: int
    last: int
    epoch: int


def seen_epochs(bounds: KafkaBounds) -> dict[int, SeenEpoch]:
    """Returns what may be asked about when these are no longer the leaders."""
    return {p: SeenEpoch(0, bounds.ends[p], epoch) for p, epoch in bounds.epochs.items()}


def stored_epochs(committed: Mapping[int, KafkaCommitted], mark: str) -> dict[int, SeenEpoch]:
    """Reads the epochs that the flow has written to its consumer group, one position each."""
    return {
        p: SeenEpoch(one.offset, one.offset, one.epoch)
        for p, one in committed.items()
        if one.metadata == mark and one.epoch is not None
    }


def of(positions: Mapping[int, int], known: Mapping[int, SeenEpoch]) -> dict[int, int]:
    """Epochs of the partitions: the epoch under which its position is known."""
    return {p: known[p].epoch for p, o in positions.items() if p in known and o <= known[p].last}


def doubtful(
    begins: Mapping[int, int], known: Mapping[int, SeenEpoch], bounds: KafkaBounds
) -> dict[int, SeenEpoch]:
    """The positions that another leader than the one known has to vouch for."""
    epochs = {
        p: SeenEpoch(begin, begin, known[p].epoch)
        for p, begin in begins.items()
        if p in known and known[p].first <= begin <= known[p].last
    }
    changed = {p: one for p, one in epochs.items() if bounds.epochs.get(p, one.epoch) != one.epoch}
    return {p: one for p, one in changed.items() if bounds.lows[p] < one.last <= bounds.ends[p]}


def cut_off(cluster: Cluster, topic: str, asked: Mapping[int, SeenEpoch]) -> dict[int, int | None]:
    """Partitions whose log was cut off below the position, and where, if the broker says so.

    librdkafka asks (OffsetForLeaderEpoch) before it fetches. Raises TransientError.
    """
    consumer = Consumer(CLIENT | SETTINGS | _OWN | cluster.settings)
    try:
        seen = asked.items()
        consumer.assign([TopicPartition(topic, p, s.last, leader_epoch=s.epoch) for p, s in seen])
        return _answers(consumer, topic, set(asked))
    finally:
        consumer.close()


def _answers(consumer: Consumer, topic: str, awaited: set[int]) -> dict[int, int | None]:
    answers: dict[int, int | None] = {}
    deadline = time.monotonic() + SILENCE
    while awaited:
        message = consumer.poll(0.1)
        error = message.error() if message is not None else None
        if message is not None and (error is None or error.code() in (_END, _RESET)):
            partition = message.partition()
            number = -1 if partition is None else partition
            awaited.discard(number)
            cut = _CUT.search(error.str() if error else "")
            answers |= {number: int(cut["kept"]) if cut["kept"] else None} if cut else {}
        elif time.monotonic() > deadline:
            names = ", ".join(map(str, sorted(awaited)))
            raise TransientError(f"topic {topic}: the leaders of partitions {names} do not answer")
    return answers
