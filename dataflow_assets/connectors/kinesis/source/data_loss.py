"""Detects data that was lost before it was read: retention has removed it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from dataflow_assets.connectors.kinesis.client import KinesisStream
from dataflow_assets.connectors.kinesis.options import KinesisSourceOptions
from dataflow_assets.connectors.kinesis.source.planning import KinesisRange, now
from dataflow_assets.connectors.kinesis.source.position import ShardPosition, StreamPosition
from dataflow_assets.contracts import PartSlice
from dataflow_assets.errors import Outdated, PermanentError, TransientError

log = logging.getLogger(__name__)
_DESCRIBED = 600_000  # milliseconds for which a description of the stream holds
_AT_RISK = 60_000  # the same where the next record is older than a stream keeps any at least
_SHORTEST = 24 * 3_600_000  # milliseconds that a stream keeps records at least


class KinesisLosses:
    """The description of a stream, and what the stream has removed of a flow's records."""

    def __init__(self, source: KinesisSourceOptions, stream: KinesisStream) -> None:
        self._source, self._stream = source, stream
        self.described, self._asked = stream.describe(), now()
        self._kept: set[str] = set()
        """Numbers of records that were found to be there still."""

    def _describe(self, known: Iterable[ShardPosition]) -> None:
        """A lane has a session open for hours, in which somebody may change the stream."""
        old = any(0 < one.known_until < now() - _SHORTEST for one in known if not one.finished)
        if now() - self._asked < (_AT_RISK if old else _DESCRIBED):
            return
        description = self._stream.describe()
        if description.identity != self.described.identity:
            raise TransientError(
                f"{self._source.title} was deleted and created again while it was read"
            )
        self.described, self._asked = description, now()

    def check(self, start: StreamPosition, there: Collection[str]) -> None:
        """Raises PermanentError where retention may have removed what was not read."""
        shards = start.shards or {name: start.of(name) for name in there}
        self._describe(shards.values())
        for shard, position in shards.items():
            lost = shard not in there or self._is_lost(shard, position)
            if not position.finished and lost:
                self._report(shard, position)

    def _is_lost(self, shard: str, position: ShardPosition) -> bool:
        oldest = now() - self.described.retention
        if position.finished or not position.known_until or position.known_until > oldest:
            return False
        sequence = position.sequence_number
        if sequence in self._kept:
            return False
        if sequence and self._stream.keeps(shard, sequence):
            self._kept.add(sequence)
            return False
        return True

    def _report(self, shard: str, position: ShardPosition) -> None:
        hours = self.described.retention // 3_600_000
        at = datetime.fromtimestamp(position.known_until / 1_000, UTC)
        what = (
            f"records of shard {shard} of {self._source.title} may have been removed before they "
            f"were read: the flow has read what arrived before {at:%Y-%m-%dT%H:%M:%SZ}, and the "
            f"stream keeps records for {hours} hours"
        )
        if self._source.on_data_loss == "fail":
            raise PermanentError(
                f"{what}; set onDataLoss: continue to go on with the oldest records that are there"
            )
        log.warning("%s; going on with the oldest records that are there", what)

    def readable(self, piece: PartSlice) -> KinesisRange | None:
        """Raises Outdated where retention has removed records of the part."""
        one = KinesisRange.parse(piece.part)
        old = one and one.arrived <= now() - self.described.retention
        if one and old and not self._stream.keeps(one.shard, one.first):
            raise Outdated(
                f"records of shard {one.shard} of {self._source.title} from {one.first} on were "
                "removed by retention before they were stored: start from earliest with "
                "table: truncate, or from latest without them"
            )
        return one
