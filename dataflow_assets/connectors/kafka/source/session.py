"""The driver's connection to a topic: bounds are fixed here before Spark reads anything.

A partition ends at its last stable offset: what an open transaction has written is read when it
ends, and the broker ends it after its time-out at the latest. Nothing blocks, nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.kafka.client import EARLIEST, LATEST, KafkaBroker, Place, Topic
from dataflow_assets.connectors.kafka.options import KafkaSourceOptions
from dataflow_assets.connectors.kafka.peek import Peek, as_batch
from dataflow_assets.connectors.kafka.source.batch_size import Sizes
from dataflow_assets.connectors.kafka.source.current_topic import CurrentTopic, list_offsets
from dataflow_assets.connectors.kafka.source.data_loss import LossCheck
from dataflow_assets.connectors.kafka.source.frame import FrameReader
from dataflow_assets.connectors.kafka.source.lags import UnreadRecords, with_ages
from dataflow_assets.connectors.kafka.source.small_spans import BUFFER_BYTES, MOST_TOGETHER
from dataflow_assets.connectors.kafka.source.start_offsets import MARK, StartOffsets
from dataflow_assets.connectors.kafka.times import moment
from dataflow_assets.connectors.kafka.topics import Offsets, describe
from dataflow_assets.contracts import Lag, Limit, OffsetSlice, Positions, SourceSession, Span
from dataflow_assets.contracts.capabilities import TakesOverPositions
from dataflow_assets.contracts.looking import EndsOfMany, LagsOfMany, Peeks
from dataflow_assets.contracts.reading import ChoosesReader, SpanReader, SparkFrames
from dataflow_assets.errors import DataflowError, PermanentError, outcome, raise_if_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OVERFLOW = "long overflow"  # as Java says it


class KafkaSourceSession(
    SourceSession,
    ChoosesReader,
    EndsOfMany,
    LagsOfMany,
    Peeks,
    SparkFrames,
    TakesOverPositions,
):
    """One topic, seen by one flow. Raises TransientError once the topic was made anew."""

    def __init__(self, source: KafkaSourceOptions, flow: str, topic: Topic | None = None) -> None:
        """`topic`: as somebody has just described it."""
        self._source, self._flow = source, flow
        self._broker = KafkaBroker(source.cluster(), source.topic)
        try:
            self.topic = CurrentTopic(self._broker, topic or self._broker.topic())
        except BaseException:
            self._broker.close()
            raise
        self._lows: dict[str, int] = {}
        self._most_bytes = Limit().bytes
        self._acknowledged: Offsets = {}
        self._far_times = False
        self._losses = LossCheck(source, flow, self._broker, self._mark)
        self._starts = StartOffsets(source, self._broker, self._losses)

    @classmethod
    def open_many(
        cls, sources: Mapping[str, KafkaSourceOptions]
    ) -> dict[str, SourceSession | DataflowError]:
        """A session for each flow, after one question about all of their topics."""
        brokers = [KafkaBroker(source.cluster(), source.topic) for source in sources.values()]
        topics = zip(sources.items(), describe(brokers, 0.0), strict=True)
        return {
            flow: one if isinstance(one, DataflowError) else cls(source, flow, one)
            for (flow, source), one in topics
        }

    @property
    @override
    def identity(self) -> str:
        return self.topic.id

    @override
    def start(self, where: str | None = None) -> Positions:
        return self._declared_start() if where is None else self._named_start(where)

    def _declared_start(self) -> Positions:
        source = self._source
        if source.begin is not None:
            return _positions(self._starts.declared_offsets(self.topic.now(), source.begin))
        if source.starting_offsets == "group":
            return _positions(self._starts.adopt(self.topic.now()))
        if source.starting_offsets == "timestamp":
            return self._named_start(source.starting_timestamp or "")
        return self._named_start(source.starting_offsets)

    def _named_start(self, where: str) -> Positions:
        if where in ("earliest", "latest"):
            spec = EARLIEST if where == "earliest" else LATEST
            return _positions(self._offsets(self.topic.now(), spec)[0])
        try:
            instant = moment(where)
        except ValueError:
            raise PermanentError(
                f"topic {self._source.topic}: cannot begin at {where!r}; allowed: earliest, latest "
                f"or a date and time like 2026-01-31T00:00:00Z"
            ) from None
        since = Place.for_timestamp(max(0, int(instant.timestamp() * 1000)))
        topic = self.topic.now()
        # The end first: what comes between the two answers is of that time, or lies behind the end.
        (ends,), (offsets,) = self._offsets(topic, LATEST), self._offsets(topic, since)
        return _positions({p: offset if offset >= 0 else ends[p] for p, offset in offsets.items()})

    @override
    def take_over(self, known: Positions) -> Positions:
        return _positions(self._starts.taken_over(self._flow, self.topic.now(), known))

    @override
    def understands(self, positions: Positions) -> bool:
        return all(partition.isdecimal() for partition in positions)

    @override
    def end(self) -> Positions:
        return self.within_bounds(self._offsets(self.topic.now(), LATEST)[0])

    @override
    @classmethod
    def ends_together(cls, sessions: Sequence[Self]) -> list[Positions | DataflowError]:
        offsets = zip(sessions, list_offsets([one.topic for one in sessions], LATEST), strict=True)
        return [
            one
            if isinstance(one, DataflowError)
            else outcome(partial(session.within_bounds, one[0]))
            for session, one in offsets
        ]

    def closed_partitions(self, after: Positions) -> frozenset[str]:
        """Returns the partitions of which nothing more is read: their declaration ends there."""
        end = self._source.end
        if end is None:
            return frozenset()
        topic = self.topic.now()
        ends = dict.fromkeys(range(topic.partitions), 0) | dict(end.offsets)
        if end.millis is not None:  # without a record of that time more may come
            offsets = self._offsets(topic, Place.for_timestamp(end.millis))[0]
            ends = {p: at for p, at in offsets.items() if at >= 0}
        return frozenset(str(p) for p, at in ends.items() if int(after.get(str(p), 0)) >= at)

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        topic = self.topic.now()
        bounds = self._broker.bounds(topic)
        lows, ends = bounds.lows, bounds.ends
        begins = _begins(after, lows)
        self._losses.check(topic, begins, bounds)
        self._lows, self._most_bytes = {str(p): low for p, low in lows.items()}, limit.bytes
        bounded = self._bound(ends, begins)
        reached = bounded if until is None else _earlier(bounded, begins, until)
        ahead = {p: (max(begins[p], lows[p]), bound) for p, bound in reached.items()}
        most = self._sizes.most(ahead, limit)
        slices = [
            OffsetSlice(str(p), begins[p], max(begins[p], min(bound, first + most[p])))
            for p, (first, bound) in sorted(ahead.items())
        ]
        full = any(most[p] < bound - first for p, (first, bound) in ahead.items())
        return Span(tuple(slices), full)

    @override
    def frame(self, spark: SparkSession, span: Span, columns: frozenset[str]) -> DataFrame:
        reader = FrameReader(self._source, self._flow, self.topic.id)
        return reader.read(spark, span, self._lows, columns, self._most_bytes)

    @override
    def reader(self, span: Span) -> SpanReader:
        """Spark's reader has its options from Spark's plan, where secrets may not be."""
        if self._is_small(span):
            return "driver"
        return "tasks" if self._far_times or not self._broker.cluster.plain else "spark"

    @override
    def frame_failed(self, reason: str) -> bool:
        """A time that Spark's reader cannot hold: it makes microseconds of the milliseconds."""
        self._far_times = self._far_times or _OVERFLOW in reason
        return _OVERFLOW in reason

    def _is_small(self, span: Span) -> bool:
        filled = [piece for piece in span.slices if not piece.empty]
        records = {
            int(piece.partition): piece.upto - piece.after
            for piece in filled
            if isinstance(piece, OffsetSlice) and piece.after >= self._lows.get(piece.partition, 0)
        }
        return (
            len(records) == len(filled)
            and sum(records.values()) <= MOST_TOGETHER
            and self._sizes.known_bytes(records) <= BUFFER_BYTES
        )

    @override
    def acknowledge(self, upto: Positions) -> None:
        offsets = {int(p): int(offset) for p, offset in upto.items()}
        changed = {p: o for p, o in offsets.items() if self._acknowledged.get(p) != o}
        if changed:
            epochs = self._losses.epochs(changed)
            self._broker.commit(self._source.consumer_group, changed, self._mark, epochs)
            self._acknowledged |= changed

    @override
    def lag(self, after: Positions) -> Lag:
        return raise_if_error(self.lags_together([(self, after)])[0])

    @override
    @classmethod
    def lags_together(
        cls, asked: Sequence[tuple[Self, Positions | None]]
    ) -> list[Lag | DataflowError]:
        offsets = list_offsets([session.topic for session, _ in asked], EARLIEST, LATEST)
        results = [
            one if isinstance(one, DataflowError) else outcome(partial(session.unread, after, *one))
            for (session, after), one in zip(asked, offsets, strict=True)
        ]
        branches = [one for one in results if isinstance(one, UnreadRecords)]
        lags = iter(with_ages(asked[0][0].ahead, branches) if branches else [])
        return [one if isinstance(one, DataflowError) else next(lags) for one in results]

    def within_bounds(self, ends: Offsets) -> Positions:
        return _positions(self._caps(ends))

    def unread(self, after: Positions | None, lows: Offsets, ends: Offsets) -> UnreadRecords:
        """Returns what a branch has not read; None: it begins at the start."""
        begins = _begins(self.start() if after is None else after, lows)
        return UnreadRecords.of(self._source.topic, begins, lows, self._bound(ends, begins))

    @override
    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        lows, ends = self._offsets(self.topic.now(), EARLIEST, LATEST)
        begins = {p: max(int(after.get(str(p), low)), low) for p, low in lows.items()}
        records = self.ahead.read({p: at for p, at in begins.items() if at < ends[p]}, limit)
        return {str(p): as_batch(messages) for p, messages in records.items()}

    @override
    def close(self) -> None:
        self._broker.close()
        if "ahead" in vars(self):
            self.ahead.close()

    @property
    def _mark(self) -> str:
        """The metadata of offsets that this flow commits; another topic's are not its own."""
        return f"{MARK}{self._flow} {self.topic.id}"

    @cached_property
    def ahead(self) -> Peek:
        return Peek(self._broker.cluster, self._source.topic)

    @cached_property
    def _sizes(self) -> Sizes:
        return Sizes(lambda *asked: self.ahead.look(*asked))  # noqa: PLW0108 - the peek is made on first use

    def _offsets(self, topic: Topic, *wanted: Place) -> list[Offsets]:
        return [dict(enumerate(offsets)) for offsets in self._broker.offsets(topic, *wanted)]

    def _bound(self, ends: Offsets, begins: Offsets) -> Offsets:
        """The ends, but not beyond that of the declaration.

        Raises PermanentError where the flow is already beyond it: there would never be news, or
        always.
        """
        caps = self._caps(ends)
        if self._source.end is not None:
            for p, cap in caps.items():
                if begins[p] > cap:
                    raise PermanentError(
                        f"topic {self._source.topic}: partition {p} is at offset {begins[p]}, and "
                        f"the declaration ends it at offset {cap}: move the end, or the begin"
                    )
        return {p: caps.get(p, begins[p]) for p in ends}

    def _caps(self, ends: Offsets) -> Offsets:
        end = self._source.end
        if end is None:
            return ends
        if end.millis is None:
            return {p: min(last, end.offsets[p]) for p, last in ends.items() if p in end.offsets}
        offsets = self._offsets(self.topic.now(), Place.for_timestamp(end.millis))[0]
        return {p: min(last, offsets[p]) if offsets[p] >= 0 else last for p, last in ends.items()}


def _begins(after: Positions, lows: Offsets) -> Offsets:
    return {p: int(after.get(str(p), 0 if after else low)) for p, low in lows.items()}


def _earlier(ends: Offsets, begins: Offsets, until: Positions) -> Offsets:
    """The ends, but not beyond `until`; a partition that came later is not read."""
    return {p: min(end, int(until.get(str(p), begins[p]))) for p, end in ends.items()}


def _positions(offsets: Mapping[int, int]) -> Positions:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}
