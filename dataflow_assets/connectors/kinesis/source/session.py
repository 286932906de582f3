"""The driver's side of the source: which records of which shards come next."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.kinesis.client import KinesisStream, Shard
from dataflow_assets.connectors.kinesis.options import KinesisSourceOptions
from dataflow_assets.connectors.kinesis.source.data_loss import KinesisLosses
from dataflow_assets.connectors.kinesis.source.planning import (
    KinesisAhead,
    KinesisBound,
    KinesisWalk,
    ahead,
    cut,
    now,
    readable,
    warn_of_foreign,
)
from dataflow_assets.connectors.kinesis.source.position import StreamPosition
from dataflow_assets.connectors.kinesis.source.read import read
from dataflow_assets.contracts import (
    Lag,
    Limit,
    PartSlice,
    Position,
    Positions,
    SourceSession,
    Span,
    fold_parts,
)
from dataflow_assets.contracts.capabilities import RenewsParts
from dataflow_assets.contracts.looking import Peeks

log = logging.getLogger(__name__)
STREAM = "stream"  # the one partition
_NAMED = {"TRIM_HORIZON": "earliest", "LATEST": "latest"}
_TOGETHER = 16  # shards that are asked at the same time
MOST_SHARDS = 64  # of one span: each of its parts carries the positions of all
_SAMPLE = 100  # records of a shard by which its lag is told


class KinesisSourceSession(SourceSession, Peeks, RenewsParts):
    """Reads shards ahead for every plan; asks for the list of shards when one of them ends."""

    def __init__(self, source: KinesisSourceOptions) -> None:
        self._source, self._stream = source, KinesisStream(source)
        self._losses = KinesisLosses(source, self._stream)
        self._shards = self._stream.shards()
        self._first = 0
        self._threads = ThreadPoolExecutor(_TOGETHER, "kinesis")
        self._idle: dict[str, tuple[KinesisAhead, int]] = {}
        """By the shard: a look that found nothing, and up to when that holds."""

    @property
    @override
    def identity(self) -> str:
        return self._losses.described.identity

    @override
    def start(self, where: str | None = None) -> Positions:
        where = where or _NAMED.get(self._source.starting_position)
        if where == "earliest":
            return _positions(StreamPosition())
        if where == "latest":
            return self._from_now()
        moment = datetime.fromisoformat(where) if where else self._source.begin
        if moment is None:
            return self._from_now()
        return self._from(moment if moment.tzinfo else moment.replace(tzinfo=UTC))

    def _from_now(self) -> Positions:
        return _positions(StreamPosition(begin=self._stream.describe().now))

    def _from(self, moment: datetime) -> Positions:
        begin = round(moment.timestamp() * 1_000)
        oldest = self._losses.described.now - self._losses.described.retention
        return _positions(StreamPosition(begin=begin if begin > oldest else 0))

    @override
    def end(self) -> Positions:
        return _positions(StreamPosition(visible=now()))

    @override
    def lags(self, partition: str, position: Position | None, end: Position) -> bool:
        start, stop = self._start({partition: position or ""}), StreamPosition.parse(end)
        if not stop.visible:
            return start.lags(stop)
        if start.visible >= stop.visible:
            return False
        return bool(self._walk(start, Limit(1, 1), stop).ranges)

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        """A span of one empty part keeps positions of idle shards from looking like a loss."""
        start = self._start(after)
        self._losses.check(start, {one.id for one in self._shards})
        walk = self._walk(start, limit, StreamPosition.parse(until[STREAM]) if until else None)
        for shard_ahead in walk.found:
            warn_of_foreign(self._source.title, shard_ahead)
        stale = walk.stale(now() - self._losses.described.retention // 4)
        parts = [one.text for one in walk.ranges] or [""] * bool(stale)
        added = StreamPosition({**stale, **walk.moved_positions})
        return Span.of_parts(added.text, parts, full=walk.full)

    def _start(self, after: Positions) -> StreamPosition:
        start = StreamPosition.parse(after.get(STREAM))
        closed = {one.id: one.closed for one in self._shards}
        if any(closed.get(name) is not True for name in start.finished_shards) or (
            start.shards.keys() - closed.keys()
        ):
            self._shards = self._stream.shards()
        return start

    def _walk(
        self, start: StreamPosition, limit: Limit, until: StreamPosition | None
    ) -> KinesisWalk:
        """Shards whose parents have nothing more are read in the same walk."""
        walk, done, finished = KinesisWalk(), set[str](), set(start.finished_shards)
        while todo := [s for s in readable(self._shards, finished) if s.id not in done]:
            for shard, ahead_of_shard in self._looks(todo, start, limit, until):
                walk.found.append(ahead_of_shard)
                walk.full = walk.full or ahead_of_shard.full
                done.add(shard.id)
                if ahead_of_shard.ended and not ahead_of_shard.records:
                    finished.add(shard.id)
            if len(walk.ranges) >= MOST_SHARDS:
                walk.full = True
                return walk
            if any(one.ended for one in walk.found):
                self._shards = self._stream.shards()
        return walk

    def _looks(
        self,
        shards: Sequence[Shard],
        start: StreamPosition,
        limit: Limit,
        until: StreamPosition | None,
    ) -> Iterator[tuple[Shard, KinesisAhead]]:
        """In turn: of very many shards the next ones, where the last look ended."""
        begin = self._first % len(shards)
        chosen = [*shards[begin:], *shards[:begin]][:MOST_SHARDS]
        self._first = begin + len(chosen)
        look = partial(self._look, start, limit, until)
        yield from zip(chosen, self._threads.map(look, chosen), strict=True)

    def _look(
        self, start: StreamPosition, limit: Limit, until: StreamPosition | None, shard: Shard
    ) -> KinesisAhead:
        """At one shard, in a thread of its own."""
        position, visible = start.of(shard.id), until.visible if until else 0
        idle, holds = self._idle.get(shard.id, (None, 0))
        if idle and idle.start == position and (idle.ended or 0 < visible <= holds):
            return idle
        shard_ahead = ahead(self._stream, shard, position, limit, KinesisBound.of(until, shard.id))
        if not shard_ahead.records and (shard_ahead.looked or visible):
            self._idle[shard.id] = shard_ahead, max(shard_ahead.looked, visible)
        return shard_ahead

    @override
    def smaller(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        one = self._losses.readable(piece)
        return cut(self._stream, one, limit) if one else (piece.part,)

    @override
    def renew(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        """Not cut: where a branch upserts, a key must be in one part."""
        self._losses.readable(piece)
        return (piece.part,)

    @override
    def fold(self, positions: Positions) -> Positions:
        position = StreamPosition.parse(positions.get(STREAM))
        position = position.then(StreamPosition.parse(fold_parts(positions, STREAM)))
        there = {one.id for one in self._shards}
        return _positions(position.without(position.shards.keys() - there))

    @override
    def lag(self, after: Positions) -> Lag:
        """Records by how dense the first ones of each shard are."""
        walk = self._walk(self._start(after), Limit(_SAMPLE), None)
        records = sum(map(_waiting, walk.found))
        oldest = min((one.arrived for one in walk.ranges), default=0)
        seconds = max(0.0, (now() - oldest) / 1_000) if oldest else 0.0
        return Lag(records, seconds, self.end())

    @override
    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        span = self.plan(after, Limit(limit))
        if not span.slices:
            return {}
        first = next(read(self._source, span.slices[0], self._source.metadata_columns), None)
        return {} if first is None else {STREAM: first.slice(0, limit)}

    @override
    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _waiting(found: KinesisAhead) -> int:
    if not found.full or not found.first or not found.last:
        return found.messages
    span = max(1, found.last.arrived - found.first.arrived)
    return found.messages + max(1, round(found.messages * found.behind / span))


def _positions(position: StreamPosition) -> Positions:
    return {STREAM: position.text}
