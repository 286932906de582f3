"""Slices read inside tasks: small ones of many topics by one consumer; large ones one by one.

A slice is over when the consumer has come to a record at or behind its upper bound, or to the end
of the log there, and by nothing else: whatever is missing before is an error of the slice, for the
driver steps over what a reader has left out. Transaction markers, aborted records and what was
compacted are gaps: the consumer passes them by itself.

How a manifest tunes fetches is asked for large slices only: it holds answers back, or makes them
large, for the sake of long reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.consumers import SETTINGS, Consumers
from dataflow_assets.connectors.kafka.options import KafkaSourceOptions
from dataflow_assets.connectors.kafka.peek import MOST
from dataflow_assets.connectors.kafka.source.confirm import refusals
from dataflow_assets.connectors.kafka.source.small_slice import BATCH_BYTES, SmallSlice
from dataflow_assets.connectors.kafka.warm_clients import WarmClients
from dataflow_assets.contracts.reading import Asked

MOST_TOGETHER = 5_000
"""Records of a small span. A larger slice is read alone, and by Spark's reader where that may."""
BUFFER_BYTES = 16 * 1024 * 1024
"""Of all slices that are read together; those that do not fit are read alone, batch by batch."""
GRACE = 1.0  # quiet seconds after which the others go on, and the brokers are asked what is wrong
SILENCE = 10.0  # seconds without an answer after which there will be none
_FETCH = {
    "fetch.message.max.bytes": 512 * 1024,  # a larger record still comes, alone
    "fetch.max.bytes": 8 * 1024 * 1024,
    "queued.max.messages.kbytes": 8 * 1024,
    "fetch.wait.max.ms": 5,
}
_LARGE = {
    "fetch.message.max.bytes": 4 * 1024 * 1024,
    "fetch.max.bytes": 16 * 1024 * 1024,
    "queued.max.messages.kbytes": 16 * 1024,
}
_GULP = 5_000  # records of a large slice that are taken at once, where the client has as many
_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - so are the client's own errors called
_GONE = {
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001
    KafkaError.OFFSET_OUT_OF_RANGE,
}

# Per process, for Spark's workers are forked and stay: connecting takes longer than reading.
_pools = WarmClients(Consumers.leave, lambda pool: pool.is_denied)


Results = Iterator[tuple[int, Iterator[pa.RecordBatch]]]


def read(cluster: Cluster, asked: Sequence[tuple[str, Asked]]) -> Results:
    """Each slice, given with its topic, and its batches, as `ReadsMessages` promises."""
    pieces = [SmallSlice(number, *one) for number, one in enumerate(asked)]
    waiting = [piece for piece in pieces if not _is_large(piece)]
    while waiting:
        # A consumer is at one place of a partition: of two flows the second one reads it later.
        now = {piece.place: piece for piece in reversed(waiting)}
        waiting = [piece for piece in waiting if now[piece.place] is not piece]
        yield from _together(cluster, list(now.values()))
    for piece in filter(_is_large, pieces):
        yield piece.number, _alone(cluster, piece)


def _is_large(piece: SmallSlice) -> bool:
    return piece.asked.piece.upto - piece.asked.piece.after > MOST_TOGETHER


def _together(cluster: Cluster, pieces: Sequence[SmallSlice]) -> Results:
    with _assign(cluster, pieces, _FETCH) as consumer:
        reading = _KafkaReading(cluster, consumer, pieces, BUFFER_BYTES)
        reading.go_on(GRACE)
        while reading.awaited:
            yield from reading.results()  # what is wrong with one slice does not hold up another
            reading.ask_for_late()
    yield from reading.results()
    for piece in reading.dropped:
        yield piece.number, _alone(cluster, piece)


def _alone(cluster: Cluster, piece: SmallSlice) -> Iterator[pa.RecordBatch]:
    """Batch by batch: in memory is one of them, and what the client fetches ahead."""
    with _assign(cluster, [piece], _FETCH | _LARGE | _fetch_settings(piece)) as consumer:
        reading = _KafkaReading(cluster, consumer, [piece], BATCH_BYTES)
        while reading.awaited:
            reading.go_on(GRACE)
            yield from piece.full()
            if reading.awaited and reading.quiet:
                reading.ask_for_late()
    for _, batches in reading.results():
        yield from batches


def _fetch_settings(piece: SmallSlice) -> dict[str, int]:
    source = piece.asked.source
    return source.fetch_settings() if isinstance(source, KafkaSourceOptions) else {}


def _assign(
    cluster: Cluster, pieces: Iterable[SmallSlice], fetch: Mapping[str, Any]
) -> AbstractContextManager[Consumer]:
    settings, way = SETTINGS | dict(fetch), tuple(sorted(fetch.items()))
    pool = _pools.of(cluster, lambda: Consumers.join(cluster, settings), way)
    partitions = [TopicPartition(*piece.place, piece.asked.piece.after) for piece in pieces]
    return pool.assign(partitions)


class _KafkaReading:
    """Slices of different partitions, read by one consumer until each of them is over.

    `most`: the bytes that they may hold together.
    """

    def __init__(
        self, cluster: Cluster, consumer: Consumer, pieces: Collection[SmallSlice], most: int
    ) -> None:
        self._cluster, self._consumer, self._most = cluster, consumer, most
        self._bootstrap = cluster.bootstrap
        self._gulp = _GULP if len(pieces) == 1 else MOST
        self._over = [piece for piece in pieces if piece.over]
        self.awaited = {piece.place: piece for piece in pieces if not piece.over}
        self.dropped: list[SmallSlice] = []
        self._assigned = {piece.place for piece in pieces}
        self.quiet = False
        self._heard = 0.0

    @property
    def _is_crowded(self) -> bool:
        return sum(one.held for one in (*self._over, *self.awaited.values())) > self._most

    def go_on(self, seconds: float) -> None:
        """Until all are over, or hold too much, or nothing has come for so long: then `quiet`."""
        self.quiet, self._heard = False, time.monotonic()
        while self.awaited and not self.quiet and not self._is_crowded:
            left = self._heard + seconds - time.monotonic()
            first = self._consumer.poll(max(left, 0.0))
            self.quiet = first is None and left <= 0
            # A message without a value has the length 0, which counts as false.
            if first is not None:
                self._hear_all([first, *self._consumer.consume(self._gulp, 0)])

    def ask_for_late(self) -> None:
        """Goes on with what is late. What is silent is asked for; what does not fit is dropped."""
        if self._is_crowded:
            self._drop(max(self.awaited.values(), key=lambda piece: piece.held))
        if not self.quiet:
            self.go_on(GRACE)
            return
        self._settle(self._refuse)
        self.go_on(SILENCE)
        if self.quiet:
            self._settle(self._give_up)

    def results(self) -> Results:
        """The results since the last call, each with all that it holds, which it gives up.

        Their topics are asked for only now, behind the last record.
        """
        over, self._over = self._over, []
        self._refuse([piece for piece in over if piece.error is None])
        for piece in over:
            yield piece.number, piece.batches()

    def _hear_all(self, messages: Sequence[Message]) -> None:
        """At once, where they are records of the one slice that is read."""
        piece = next(iter(self.awaited.values())) if len(self._assigned) == 1 else None
        ends = {(one.topic(), one.partition()) for one in (messages[0], messages[-1])}
        if piece and ends == {piece.place} and all(one.error() is None for one in messages):
            self._heard = time.monotonic()
            piece.take_all(messages)
            self._sort_out(piece)
            return
        for message in messages:
            self._hear(message)

    def _hear(self, message: Message) -> None:
        place = str(message.topic()), int(message.partition() or 0)
        piece = self.awaited.get(place)
        if piece is None:
            if message.error() is None and place in self._assigned:
                self._assigned.discard(place)
                self._consumer.incremental_unassign([TopicPartition(*place)])
        elif self._news(piece, message):
            self._heard = time.monotonic()
            self._sort_out(piece)

    def _news(self, piece: SmallSlice, message: Message) -> bool:
        error = message.error()
        if error is None:
            return piece.take(message)
        if error.code() == _END:
            return piece.reach(message.offset())
        if error.code() in _GONE and self._skip(piece):
            return True
        self._refuse([piece])
        piece.error = piece.error or piece.failure(self._bootstrap, error)
        return True

    def _skip(self, piece: SmallSlice) -> bool:
        """Goes on where the log begins by now, if the flow is to (`onDataLoss: continue`)."""
        source = piece.asked.source
        if not isinstance(source, KafkaSourceOptions) or source.on_data_loss != "continue":
            return False
        with suppress(KafkaException):
            low, _ = self._consumer.get_watermark_offsets(TopicPartition(*piece.place), SILENCE)
            if low > piece.following:
                piece.skip(low)
                # Not `seek`: errors about the old place that are on their way would count again.
                self._consumer.incremental_unassign([TopicPartition(*piece.place)])
                self._consumer.incremental_assign([TopicPartition(*piece.place, low)])
                return True
        return False

    def _refuse(self, pieces: Collection[SmallSlice]) -> None:
        errors = refusals(self._cluster, {piece.planned for piece in pieces})
        for piece in pieces:
            error = errors.get(piece.planned)
            piece.error = None if error is None else type(error)(*error.args)

    def _give_up(self, pieces: Collection[SmallSlice]) -> None:
        for piece in pieces:
            piece.error = piece.silence_error(self._bootstrap, SILENCE)

    def _settle(self, judge: Callable[[Collection[SmallSlice]], None]) -> None:
        awaited = list(self.awaited.values())
        judge(awaited)
        for piece in awaited:
            self._sort_out(piece)

    def _sort_out(self, piece: SmallSlice) -> None:
        if piece.over:
            self._over.append(self.awaited.pop(piece.place))

    def _drop(self, piece: SmallSlice) -> None:
        """It is read alone, from its beginning."""
        del self.awaited[piece.place]
        piece.restart()
        self.dropped.append(piece)
