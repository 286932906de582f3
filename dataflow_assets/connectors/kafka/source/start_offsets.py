"""The beginning of a flow without a checkpoint: at a group's offsets, or at declared ones."""

from __future__ import annotations

from dataflow_assets.connectors.kafka.client import EARLIEST, LATEST, KafkaBroker, Topic
from dataflow_assets.connectors.kafka.options import KafkaSourceOptions
from dataflow_assets.connectors.kafka.source.data_loss import LossCheck, beyond
from dataflow_assets.connectors.kafka.source.take_over import (
    ELSEWHERE,
    STORED,
    check_left,
    foreign,
    report,
)
from dataflow_assets.connectors.kafka.topics import Offsets
from dataflow_assets.connectors.kafka.values import Begin
from dataflow_assets.contracts import Positions
from dataflow_assets.errors import PermanentError

MARK = "dataflow-assets:"  # begins the metadata of offsets that we have committed


class StartOffsets:
    """Offsets of one topic at which one flow begins."""

    def __init__(self, source: KafkaSourceOptions, broker: KafkaBroker, losses: LossCheck) -> None:
        self._source, self._broker, self._losses = source, broker, losses

    def declared_offsets(self, topic: Topic, begin: Begin) -> Offsets:
        """The declared offsets; a partition without one begins where the group is.

        Raises PermanentError for an offset that the topic does not have.
        """
        lows, highs = self.lows_and_highs(topic)
        offsets = dict(begin.offsets)
        name = self._source.topic
        if wrong := foreign(name, offsets, lows) or beyond(name, offsets, highs):
            raise PermanentError(f"{wrong}; correct the offsets at which the flow begins")
        return self.adopt(topic) | offsets

    def adopt(self, topic: Topic) -> Offsets:
        """Returns where the group is, unless this program has put it there; else the earliest."""
        stored = self._of_group(topic)  # before the ends: the group may go on meanwhile
        lows, highs = self.lows_and_highs(topic)
        return lows | self._there(stored, lows, highs)

    def taken_over(self, flow: str, topic: Topic, known: Positions) -> Offsets:
        """Returns where another program has stopped that has filled the table so far.

        Args:
            flow: who takes over, for the log.
            topic: as it is now.
            known: the offsets that are stored with the rows; others are those of the group.

        Raises:
            PermanentError where the topic is another one; TransientError while that program reads.
        """
        check_left(self._source, self._broker.members(self._source.consumer_group, topic))
        others = self._of_group(topic)
        lows, highs = self.lows_and_highs(topic)
        stored = {int(partition): int(offset) for partition, offset in known.items()}
        name = self._source.topic
        wrong = foreign(name, stored, lows) or beyond(name, stored, highs)
        if wrong:
            raise PermanentError(f"{wrong}; {STORED}")
        lost = {p: offset for p, offset in stored.items() if offset < lows[p]}
        self._losses.check_adopted(ELSEWHERE, lost, lows, highs)
        left = {p: low for p, low in lows.items() if p not in stored}
        group = self._there(others, left, highs)
        report(flow, self._source, stored, group, left)
        return lows | group | stored

    def _of_group(self, topic: Topic) -> Offsets:
        stored = self._broker.committed_offsets(self._source.consumer_group, topic)
        return {p: c.offset for p, c in stored.items() if not c.metadata.startswith(MARK)}

    def _there(self, stored: Offsets, lows: Offsets, highs: Offsets) -> Offsets:
        """Picks the offsets that the log has, of the partitions in `lows`."""
        group = self._source.consumer_group
        offsets = {p: offset for p, offset in stored.items() if p in lows}
        advice = f"group {group} has committed these offsets: move it, or set startingOffsets"
        self._losses.check_adopted(advice, offsets, lows, highs)
        return {p: o for p, o in offsets.items() if lows[p] <= o <= highs[p]}

    def lows_and_highs(self, topic: Topic) -> tuple[Offsets, Offsets]:
        """Returns where the logs begin, and where they end, open transactions included."""
        highs = self._broker.offsets(topic, LATEST, committed=False)[0]
        lows = self._broker.offsets(topic, EARLIEST)[0]
        return dict(enumerate(lows)), dict(enumerate(highs))
