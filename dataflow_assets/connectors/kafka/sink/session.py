"""The driver's side of the Kafka sink: epoch, starts, intents, and what is left after a pass."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.kafka.client import EARLIEST, LATEST, PATIENCE, Topic
from dataflow_assets.connectors.kafka.create_topic import BROKERS_OWN
from dataflow_assets.connectors.kafka.options import KafkaSinkOptions
from dataflow_assets.connectors.kafka.rejected.error_sink import prepare_topic
from dataflow_assets.connectors.kafka.sink import empty_topic, key_spelling
from dataflow_assets.connectors.kafka.sink.checkpoint import (
    LOOK_SECONDS,
    WAIT_SECONDS,
    CheckpointTopic,
)
from dataflow_assets.connectors.kafka.sink.checkpoint_records import (
    KafkaHead,
    KafkaIntent,
    KafkaStored,
    load_checkpoint,
)
from dataflow_assets.connectors.kafka.sink.head_writer import HeadWriter
from dataflow_assets.connectors.kafka.sink.key_spelling import CURRENT
from dataflow_assets.contracts import (
    MESSAGES,
    Checkpoint,
    ChecksTarget,
    Cut,
    PartSlice,
    Positions,
    Receipt,
    Run,
    SinkSession,
    SourceSession,
    Span,
    Target,
    Ticket,
    Totals,
    utc_now,
)
from dataflow_assets.errors import TransientError
from dataflow_assets.sdk.sink.decide import check_begun, gaps, intent_of, unknown_starts

log = logging.getLogger(__name__)

MOMENT = 0.3  # seconds in which a commit that was decided becomes visible


class KafkaSinkSession(SinkSession, ChecksTarget):
    """One epoch of one branch. The checkpoint is kept in memory: an idle loop asks nothing."""

    def __init__(self, sink: KafkaSinkOptions, target: Target, run: Run) -> None:
        self._sink, self._target, self._run = sink, target, run
        self._side_topic = CheckpointTopic.of(sink.cluster(), target)
        self._heads = HeadWriter(sink.cluster(), self._side_topic, target)
        self._topic: Topic | None = None
        self._values = sink.value_schema(sink.topic)
        self._stored: KafkaStored
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @property
    @override
    def checkpoint(self) -> Checkpoint:
        return self._stored.state.for_readers

    @property
    @override
    def identity(self) -> str | None:
        return self._topic.id if self._topic else None

    @override
    def schema(self) -> pa.Schema | None:
        return MESSAGES if self._topic else None

    @override
    def check_target(self) -> None:
        if self._topic is None and not self._sink.auto_create_topic:
            raise self._sink.no_topic(self._side_topic.about(self._sink.topic).probably())

    @override
    def create(self, sample: pa.Schema) -> None:
        self.check_target()
        sink = self._sink
        replicas = sink.topic_replicas or BROKERS_OWN
        config = {"cleanup.policy": "compact"} if sink.upsert_mode else {}
        admin = self._side_topic.about(sink.topic)
        self._topic = admin.make(sink.topic_partitions or BROKERS_OWN, replicas, config)

    @override
    def holds_rows(self) -> bool:
        """Markers of transactions count as well: what lies between two offsets is not known."""
        if self._topic is None:
            return False
        admin = self._side_topic.about(self._sink.topic)
        lows, highs = admin.offsets(self._topic, EARLIEST, LATEST, committed=False)
        return lows != highs

    @override
    def adopt(self) -> None:
        self._write(msgspec.structs.replace(self._stored.head, target=self.identity))

    @override
    def restart(self, positions: Positions, source: str, *, empty: bool = False) -> None:
        self._fence()
        below = self._ends() if empty else None  # behind what a task has committed until just now
        head = self._stored.restart(positions, source, self.identity)
        manifest = self._target.manifest
        keys = CURRENT if empty else head.keys
        self._write(msgspec.structs.replace(head, manifest=manifest, emptied=below, keys=keys))
        self._empty()

    @override
    def begin(self, span: Span) -> Span:
        if (unfinished := self._stored.state.unfinished_span) is not None:
            return unfinished
        check_begun(self._target.flow, span, self.checkpoint.positions)
        head = self._head_for(span)
        if head != self._stored.head:
            self._side_topic.grow(head)
            self._write(head)
        failpoints.reach("kafka.begin")
        return span  # where nothing was new, the tasks assert the epoch

    @override
    def divide(self, span: Span, cut: Cut) -> Span:
        if self._stored.state.divide(cut).intent in ((), span.slices):
            return span
        self._fence()  # nobody reads the old parts' checkpoints any more before a commit
        divided = replace(span, slices=self._stored.state.divide(cut).intent)
        head = self._stored.head.with_slots(divided)
        self._side_topic.grow(head)
        # The same serial: what is committed of this intent stays so.
        self._write(msgspec.structs.replace(head, intent=KafkaIntent.of(intent_of(divided))))
        return divided

    @override
    def abandon(self) -> None:
        self._fence()  # as in `divide`
        unfinished = self._stored.state.unfinished_span
        if unfinished is not None and any(piece.empty for piece in unfinished.slices):
            raise TransientError(f"flow {self._target.flow}: a part was committed meanwhile")
        self._write(msgspec.structs.replace(self._stored.head, intent=None))

    @override
    def ticket(self) -> Ticket:
        if self._topic is None:
            raise self._sink.no_topic()
        failpoint = failpoints.from_environment()
        target = replace(self._target, reading=self._stored.head.reading)
        schema = MESSAGES if self._values is None else self._values.mark(MESSAGES)
        schema = key_spelling.mark(schema, self._stored.head.keys)
        return Ticket(target, self._run, self._heads.epoch, schema, failpoint)

    @override
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        failpoints.reach("kafka.finish")
        mine = [r for r in receipts if r.branch == self._target.branch and r.staged]
        moved = {r.partition: load_checkpoint(r.staged[0].encode()) for r in mine}
        self._stored = KafkaStored(self._stored.head, {**self._stored.checkpoints, **moved})
        if any(isinstance(piece, PartSlice) for piece in span.slices):
            self._finish_parts(source)
        elif missed := gaps(span, self.checkpoint.positions):  # markers, and no records
            self._move(self._stored.head.base | {s.partition: s.upto for s in missed})
        return self.checkpoint

    @override
    def forget(self) -> None:
        self._fence()
        head = self._stored.restart({}, None, None)
        self._write(msgspec.structs.replace(head, totals=Totals(), manifest=""))

    @override
    def close(self) -> None:
        self._heads.close()

    def _open(self) -> None:
        self._side_topic.prepare()
        self._stored = KafkaStored(self._heads.take(self._run))
        self._reload()
        self._empty()
        # One that has rows of ours is missed for a while before it is made, and filled, once more.
        may_be_new = self._sink.auto_create_topic and self._stored.head.target is None
        admin = self._side_topic.about(self._sink.topic)
        self._topic = admin.find(0 if may_be_new else PATIENCE)
        if self._target.rejects.way == "table":
            prepare_topic(
                self._side_topic.about(self._sink.rejected_topic), self._sink.topic_replicas
            )

    def _reload(self, patience: float = LOOK_SECONDS) -> list[str]:
        """Reads the checkpoints; ends what is still open, of a task that died or is about to.

        Returns the partitions of which a commit may still become visible: theirs are too low.
        """
        checkpoints, open_ = self._side_topic.checkpoints(self._stored.head, MOMENT)
        for partition in open_:
            self._heads.end(partition)
        if open_:
            checkpoints, open_ = self._side_topic.checkpoints(self._stored.head, patience)
        self._stored = KafkaStored(self._stored.head, checkpoints)
        return open_

    def _fence(self) -> None:
        """From here on nothing can be committed that was begun before, and all else is known."""
        self._side_topic.owned_head(self._heads.epoch)
        for partition in self._stored.head.slots:
            self._heads.end(partition)
        if open_ := self._reload(WAIT_SECONDS):
            raise self._side_topic.open_transaction(self._stored.head.slots[open_[0]])

    def _head_for(self, span: Span) -> KafkaHead:
        """The head as this span needs it."""
        head = self._stored.head.with_slots(span)
        intent = KafkaIntent.of(intent_of(span))
        starts = unknown_starts(span, self.checkpoint.positions)
        return msgspec.structs.replace(
            head,
            base=head.base | {name: at for name, at in starts.items() if at is not None},
            intent=intent,
            serial=head.serial + (intent is not None),
            target=head.target or self.identity,
            manifest=self._target.manifest,
        )

    def _finish_parts(self, source: SourceSession) -> None:
        unfinished = self._stored.state.unfinished_span
        if unfinished is not None and unfinished.empty:
            self._move(source.fold(self.checkpoint.positions))

    def _move(self, base: Positions) -> None:
        moved = {"base": dict(base), "intent": None, "committed_at": utc_now()}
        self._write(msgspec.structs.replace(self._stored.head, **moved))

    def _write(self, head: KafkaHead) -> None:
        self._heads.write(head)
        self._stored = KafkaStored(head, self._stored.checkpoints)

    def _ends(self) -> dict[str, int]:
        return empty_topic.ends(self._side_topic, self._topic, self._sink, self._target)

    def _empty(self) -> None:
        head = self._stored.head
        if head.emptied is not None:
            empty_topic.delete(self._side_topic, self._sink.topic, head)
            self._write(msgspec.structs.replace(head, emptied=None))
