"""Which records come next: the shards are read ahead, up to a limit, and their last record kept.

Kinesis names no last record of a shard, and the bounds of a span are fixed before it is read. So
the driver reads what the tasks will read, and keeps of it where it ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from dataflow_assets.connectors.kinesis.aggregates import Contents, deaggregate
from dataflow_assets.connectors.kinesis.client import (
    MOST_RECORDS,
    HashKeys,
    KinesisRecord,
    KinesisStream,
    Shard,
)
from dataflow_assets.connectors.kinesis.source.position import ShardPosition, StreamPosition
from dataflow_assets.contracts import Limit
from dataflow_assets.records.decoding import decode_json

log = logging.getLogger(__name__)

SLACK = 2_000
"""Milliseconds by which the clocks of the service and of the driver may differ: what arrives so
shortly after an end was asked for counts as visible then."""
_SECONDS = 10.0  # that a shard is read ahead at most


class KinesisRange(msgspec.Struct, frozen=True, omit_defaults=True):
    """Records of a shard: those behind `start`, up to the one numbered `last`."""

    shard: str
    start: ShardPosition
    first: str
    last: str
    records: int
    bytes: int
    arrived: int
    """When the first of them arrived, in ms since 1970."""
    messages: int | None = None
    """How many messages they are; None: as many as records."""
    hash_keys: tuple[str, str] | None = None
    """The hash keys of the shard; None: not recorded, by an earlier version."""

    @property
    def keys(self) -> HashKeys:
        return HashKeys(*map(int, self.hash_keys or ()))

    @classmethod
    def parse(cls, part: str) -> KinesisRange | None:
        """Returns what `text` wrote; None for a part without records."""
        return decode_json(part, cls) if part else None

    @property
    def text(self) -> str:
        return msgspec.json.encode(self).decode()


@dataclass(frozen=True)
class KinesisBound:
    """The latest end of reading ahead."""

    upto: ShardPosition | None = None
    """A position of another reader; None: no such bound."""
    before: int | None = None
    """Records that arrived then or later, in ms since 1970, are left for later."""

    def excludes(self, record: KinesisRecord) -> bool:
        if self.upto is not None and not self.upto.has(record.sequence):
            return True
        return self.before is not None and record.arrived >= self.before

    @classmethod
    def of(cls, until: StreamPosition | None, shard: str) -> KinesisBound:
        if until is None:
            return cls()
        if until.visible:
            return cls(before=until.visible + SLACK)
        return cls(upto=until.of(shard))


@dataclass(frozen=True)
class KinesisAhead:
    """The records ahead in a shard."""

    shard: Shard
    start: ShardPosition
    first: KinesisRecord | None = None
    last: KinesisRecord | None = None
    records: int = 0
    messages: int = 0
    """How many messages the records are: an aggregate is several."""
    foreign: int = 0
    """Messages of aggregates that are left out: they are of other shards."""
    bytes: int = 0
    ended: bool = False
    """It is closed, and there is nothing behind these records."""
    full: bool = False
    """There is more."""
    looked: int = 0
    """When the last page was asked for, where it came to the tip of the shard, else 0; in ms since
    1970 by the clock of the reader."""
    behind: int = 0
    """Milliseconds from the last page to the tip."""

    @property
    def ranges(self) -> tuple[KinesisRange, ...]:
        """The records; none where there are none."""
        if self.first is None or self.last is None:
            return ()
        ends, sizes = (self.first.sequence, self.last.sequence), (self.records, self.bytes)
        messages = self.messages if self.messages != self.records else None
        keys = str(self.shard.keys.first), str(self.shard.keys.last)
        first = self.first.arrived
        return (KinesisRange(self.shard.id, self.start, *ends, *sizes, first, messages, keys),)

    @property
    def position(self) -> ShardPosition:
        start, last = self.start, self.last
        read = max(start.read, self.looked, last.arrived if last else 0)
        if last is None:
            return msgspec.structs.replace(start, read=read, finished=self.ended)
        return ShardPosition(last.sequence, read=read, finished=self.ended)


@dataclass
class KinesisWalk:
    """The records ahead in the shards of a stream."""

    found: list[KinesisAhead] = field(default_factory=list)
    full: bool = False
    """There is more."""

    @property
    def ranges(self) -> list[KinesisRange]:
        """The records of all shards, each of one shard."""
        return [one for ahead in self.found for one in ahead.ranges]

    @property
    def moved_positions(self) -> dict[str, ShardPosition]:
        """Returns where shards are read to that have records, or that are finished."""
        return {one.shard.id: one.position for one in self.found if one.records or one.ended}

    def stale(self, before: int) -> dict[str, ShardPosition]:
        """Positions of shards that had no records, and of which that was last stored earlier."""
        idle = (one for one in self.found if one.looked and not one.records and not one.ended)
        return {one.shard.id: one.position for one in idle if 0 < one.start.known_until < before}


def ahead(
    stream: KinesisStream, shard: Shard, start: ShardPosition, limit: Limit, bound: KinesisBound
) -> KinesisAhead:
    """Reads a shard until there is nothing more, or a limit is reached.

    Called by the driver, in a thread for each of several shards.

    Args:
        stream: connected.
        shard: whose records.
        start: behind which position.
        limit: the most messages and bytes; one record at least.
        bound: what is left for later.
    """
    step, until, looked = KinesisAhead(shard, start), time.monotonic() + _SECONDS, now()
    for page in stream.pages(shard.id, start.iterator, min(MOST_RECORDS, limit.records + 1)):
        step, more = _fitting(page.records, limit, bound, replace(step, behind=page.behind))
        if more is not None:
            return replace(step, full=more)
        if page.ended or page.at_tip:
            return replace(step, ended=page.ended, looked=looked)
        if step.records and time.monotonic() > until:
            return replace(step, full=True)
        looked = now()
    return replace(step, ended=True, looked=looked)


def _fitting(
    records: Sequence[KinesisRecord], limit: Limit, bound: KinesisBound, found: KinesisAhead
) -> tuple[KinesisAhead, bool | None]:
    """With the records to take, and why not all of them: True for a limit, False for the bound."""
    for record in records:
        if bound.excludes(record):
            return found, False
        contents = deaggregate(record, found.shard.keys)
        more = _with(found, record, contents)
        if found.records and (more.messages > limit.records or more.bytes > limit.bytes):
            return found, True
        found = more
    return found, None


def _with(found: KinesisAhead, record: KinesisRecord, contents: Contents) -> KinesisAhead:
    return replace(
        found,
        first=found.first or record,
        last=record,
        records=found.records + 1,
        messages=found.messages + len(contents.records),
        foreign=found.foreign + contents.foreign,
        bytes=found.bytes + len(record.data),
    )


def warn_of_foreign(stream: str, found: KinesisAhead) -> None:
    """Says how many user records are left out, once for each span that would have them."""
    if found.foreign:
        log.warning(
            "%d user records in aggregates of shard %s of %s are left out: their hash keys are "
            "those of other shards, to which the Kinesis Producer Library sends them again",
            *(found.foreign, found.shard.id, stream),
        )


def readable(shards: Iterable[Shard], finished: Collection[str]) -> list[Shard]:
    """The shards to read now: those whose parents are done, as far as they are still there."""
    all_shards = list(shards)
    waiting = {one.id for one in all_shards} - set(finished)
    return [one for one in all_shards if one.id in waiting and waiting.isdisjoint(one.parents)]


def cut(stream: KinesisStream, one: KinesisRange, limit: Limit) -> Sequence[str]:
    """The borders of parts with the records of this range, each within the limit."""
    messages = one.records if one.messages is None else one.messages
    if messages <= limit.records and one.bytes <= limit.bytes:
        return (one.text,)
    texts, start = list[str](), one.start
    bound = KinesisBound(ShardPosition(one.last))
    while not start.has(one.last):
        piece = ahead(stream, Shard(one.shard, keys=one.keys), start, limit, bound)
        if not piece.ranges:
            return (one.text,)  # whoever reads the part says what is gone
        texts += [smaller.text for smaller in piece.ranges]
        start = piece.position
    return tuple(texts)


def now() -> int:
    """The time of this machine, in ms since 1970."""
    return round(time.time() * 1_000)
