"""The stored state of one branch: the driver's head, and checkpoints of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace
from typing_extensions import override

from dataflow_assets.connectors.kafka.options import KafkaSinkOptions
from dataflow_assets.connectors.kafka.sink import empty_topic
from dataflow_assets.connectors.kafka.sink.checkpoint import (
    LOOK_SECONDS,
    WAIT_SECONDS,
    CheckpointTopic,
)
from dataflow_assets.connectors.kafka.sink.checkpoint_records import (
    KafkaHead,
    KafkaStored,
    load_checkpoint,
)
from dataflow_assets.connectors.kafka.sink.head_writer import HeadWriter
from dataflow_assets.connectors.kafka.sink.key_spelling import CURRENT
from dataflow_assets.contracts import Receipt, Run, Target, TargetTable
from dataflow_assets.sdk.sink.checkpoint_store import CheckpointStore, StateChange
from dataflow_assets.sdk.sink.state import BranchState

MOMENT = 0.3  # seconds in which a commit that was decided becomes visible


class KafkaCheckpoints(CheckpointStore):
    """The state in memory and in the side topic: between changes nothing is asked.

    Receipts say what tasks have committed.
    """

    system: ClassVar = "kafka"

    def __init__(
        self,
        sink: KafkaSinkOptions,
        target: Target,
        run: Run,
        table: TargetTable,
        side_topic: CheckpointTopic,
    ) -> None:
        self._sink, self._target, self._run, self._table = sink, target, run, table
        self._side_topic = side_topic
        self._heads = HeadWriter(sink.cluster(), side_topic, target)
        self.stored: KafkaStored

    @override
    def load(self, receipts: Sequence[Receipt] = ()) -> BranchState:
        moved = {r.partition: load_checkpoint(r.staged[0].encode()) for r in receipts if r.staged}
        self.stored = KafkaStored(self.stored.head, {**self.stored.checkpoints, **moved})
        return self.stored.state

    @override
    def change(self, step: StateChange) -> BranchState:
        state = step(self.stored.state)
        unfinished = self.stored.state.unfinished_span
        if unfinished and not unfinished.empty and state.intent != self.stored.state.intent:
            self._end_open()  # nobody reads the parts' own checkpoints any more before a commit
            state = step(self.stored.state)
        self._write(self._grow(self.stored.move(state, self._run)))
        return self.stored.state

    @override
    def fence(self, step: StateChange, *, empty: bool = False) -> BranchState:
        """Takes the producers of all tasks, whose transactions end; that of drivers, to open."""
        if not self._heads.epoch:
            self.stored = KafkaStored(self._heads.take(lambda head: self._take(head, step)))
            self._reload()
            head = self.stored.move(self.stored.state, self._run)
            if head.slots != self.stored.head.slots:  # an earlier version gave them in `begin`
                self._write(self._grow(head))
        else:
            self._end_open()
            # Behind what a task has committed until now.
            below = empty_topic.ends(self._side_topic, self._sink, self._target) if empty else None
            head = self._grow(self.stored.restart(step(self.stored.state), self._run))
            self._write(replace(head, emptied=below, keys=CURRENT if empty else head.keys))
        if self.stored.head.emptied is not None:
            empty_topic.delete(self._side_topic, self._sink.topic, self.stored.head)
            self._write(replace(self.stored.head, emptied=None))
        return self.stored.state

    @override
    def sharing(self) -> Mapping[str, str]:
        identity = self._table.identity
        return self._side_topic.others(identity) if identity else {}

    @override
    def close(self) -> None:
        self._heads.close()

    def _take(self, head: KafkaHead, step: StateChange) -> KafkaHead:
        stored = KafkaStored(replace(head, flow=self._target.flow))
        return replace(stored.move(step(stored.state), self._run), slots=head.slots)

    def _grow(self, head: KafkaHead) -> KafkaHead:
        """The side topic has a partition for each slot."""
        if head.slots != self.stored.head.slots:
            self._side_topic.grow(head)
        return head

    def _reload(self, patience: float = LOOK_SECONDS) -> list[str]:
        """Reads the checkpoints; ends what is still open, of a task that died or is about to.

        Returns the partitions of which a commit may still become visible: theirs are too low.
        """
        checkpoints, open_ = self._side_topic.checkpoints(self.stored.head, MOMENT)
        for partition in open_:
            self._heads.end(partition)
        if open_:
            checkpoints, open_ = self._side_topic.checkpoints(self.stored.head, patience)
        self.stored = KafkaStored(self.stored.head, checkpoints)
        return open_

    def _end_open(self) -> None:
        """From here on nothing can be committed that was begun before, and all else is known."""
        self._side_topic.owned_head(self._heads.epoch)
        for partition in self.stored.head.slots:
            self._heads.end(partition)
        if open_ := self._reload(WAIT_SECONDS):
            raise self._side_topic.open_transaction(self.stored.head.slots[open_[0]])

    def _write(self, head: KafkaHead) -> None:
        self._heads.write(head)
        self.stored = KafkaStored(head, self.stored.checkpoints)
