"""Detects data that was lost before it was read: found out before a plan, and named.

Three ways to lose records: retention takes what lies below a position, the log ends below a
position, or the log was cut off there and has grown again (`leader_epochs`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from dataflow_assets.connectors.kafka.client import LATEST, KafkaBounds, KafkaBroker, Topic
from dataflow_assets.connectors.kafka.options import KafkaSourceOptions
from dataflow_assets.connectors.kafka.source import leader_epochs
from dataflow_assets.connectors.kafka.source.leader_epochs import SeenEpoch
from dataflow_assets.errors import PermanentError, TransientError

log = logging.getLogger(__name__)

Offsets = Mapping[int, int]
RESET = "run `dataflow reset` to start over"
_UNTOLD = (
    "the flow waits, for without them a log that a broker has cut off looks sound: check that all "
    "partitions of __consumer_offsets have a leader"
)


# By broker, topic's id and flow. A session that is opened again after an error knows what the one
# before has seen; what its consumer group was told at last may be half a minute old in a lane.
_seen: dict[tuple[str, str, str], dict[int, SeenEpoch]] = {}


class LossCheck:
    """Compares the positions of one flow with the log of its topic.

    What is lost ends the run with a PermanentError, or is logged once (`onDataLoss: continue`).
    """

    def __init__(
        self, source: KafkaSourceOptions, flow: str, broker: KafkaBroker, mark: str
    ) -> None:
        self._source, self._flow, self._broker, self._mark = source, flow, broker, mark
        self._known: dict[int, SeenEpoch] = {}
        self._warned: set[str] = set()

    def check(self, topic: Topic, begins: Offsets, bounds: KafkaBounds) -> None:
        """Checks that what comes next in each partition is there, and is what came next before.

        Raises TransientError where the topic itself is another one by now, or where nobody can say
        under which leaders its records were read.
        """
        below = expired_offsets(self._source.topic, begins, bounds.lows)
        above = any(begins[p] > bounds.ends[p] for p in begins)
        if below or above:
            self._broker.same(topic.id)  # else these are the bounds of another topic
        self._report_loss(below, RESET)
        if above:
            self._check_end(topic, begins)
        name = self._source.topic
        key = self._broker.bootstrap, topic.id, self._flow
        seen = _seen[key] if key in _seen else self._stored_epochs(topic, begins, bounds.lows)
        doubtful = leader_epochs.doubtful(begins, seen, bounds)
        kept = leader_epochs.cut_off(self._broker.cluster, name, doubtful) if doubtful else {}
        if kept:
            self._broker.same(topic.id)
        self._report_loss(replaced_offsets(name, begins, kept), RESET)
        self._known = _seen[key] = leader_epochs.seen_epochs(bounds)

    def check_adopted(self, advice: str, offsets: Offsets, lows: Offsets, highs: Offsets) -> None:
        """Checks the same of offsets of another program; `advice` says whose, and what to do."""
        self._report_loss(expired_offsets(self._source.topic, offsets, lows), advice)
        self._report_loss(beyond(self._source.topic, offsets, highs), advice)

    def epochs(self, offsets: Offsets) -> dict[int, int]:
        """Epochs of the partitions: the leader's epoch under which its offset is known."""
        return leader_epochs.of(offsets, self._known)

    def _check_end(self, topic: Topic, begins: Offsets) -> None:
        """A position above the last stable offset is sound as long as the log reaches it.

        `onDataLoss: continue` does not help here: a checkpoint cannot go back.
        """
        highs = self._broker.offsets(topic, LATEST, committed=False)[0]
        sentence = beyond(self._source.topic, begins, dict(enumerate(highs)))
        if sentence:
            raise PermanentError(f"{sentence}; {RESET}")

    def _stored_epochs(self, topic: Topic, begins: Offsets, lows: Offsets) -> dict[int, SeenEpoch]:
        if begins == lows:
            return {}
        try:
            committed = self._broker.committed_offsets(self._source.consumer_group, topic)
        except TransientError as error:
            raise TransientError(f"{error}; {_UNTOLD}") from error
        except PermanentError:
            return {}
        return leader_epochs.stored_epochs(committed, self._mark)

    def _report_loss(self, sentence: str, advice: str) -> None:
        if not sentence:
            return
        if self._source.on_data_loss == "fail":
            raise PermanentError(
                f"{sentence}; set onDataLoss: continue to go on without, or {advice}"
            )
        if sentence not in self._warned:
            log.warning("flow %s: %s; going on without (onDataLoss)", self._flow, sentence)
            self._warned.add(sentence)


def expired_offsets(topic: str, begins: Mapping[int, int], lows: Mapping[int, int]) -> str:
    """The offsets below the log start; empty when nothing is missing.

    Only the log start tells: compaction and transaction markers leave gaps above it.
    """
    lost = [
        f"partition {partition} offsets {begin} to {lows[partition] - 1}"
        for partition, begin in sorted(begins.items())
        if begin < lows[partition]
    ]
    if not lost:
        return ""
    return (
        f"topic {topic}: {'; '.join(lost)}: removed by retention, or by somebody, before they were "
        f"read"
    )


def replaced_offsets(topic: str, begins: Mapping[int, int], kept: Mapping[int, int | None]) -> str:
    """The logs that were cut off below what was read, and have grown again since."""
    if not kept:
        return ""
    cut = [
        f"partition {partition} was cut off at offset {'?' if end is None else end}, below "
        f"{begins[partition]}, which comes next"
        for partition, end in sorted(kept.items())
    ]
    return (
        f"topic {topic}: {'; '.join(cut)}: a broker has lost records that were read, and other "
        f"records have their offsets now, which were not"
    )


def beyond(topic: str, begins: Mapping[int, int], highs: Mapping[int, int]) -> str:
    """The positions that lie above the end of the log; empty when there are none."""
    wrong = [
        f"partition {partition} ends at offset {highs[partition]}, but {begin} comes next"
        for partition, begin in sorted(begins.items())
        if begin > highs[partition]
    ]
    if not wrong:
        return ""
    return f"topic {topic}: {'; '.join(wrong)}: the log was truncated, or the topic was recreated"
