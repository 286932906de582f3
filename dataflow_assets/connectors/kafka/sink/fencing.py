"""What a task finds stored, once the producer of its source partition is its own.

Why no interleaving loses or doubles a record, by whoever might come too late:

- A task of an older driver, or a second attempt of Spark's. Every task first takes the producer of
  its source partition (`init_transactions`: predecessors are fenced, their open transactions are
  aborted, decided ones are ended), and only then reads head and checkpoint up to the end of the
  log. So it sees every commit that ever will be, and none comes after it but its own successors'.
  It stops when the head has another epoch, or an intent without its part.
- It read the head just before a new driver took the epoch. Then its commit is one before that
  driver's own tasks, which find its checkpoint and skip what it covers. Positions that the new
  driver has read before are only too low.
- The new driver restarts, empties or forgets the branch. Those three take the producers of all
  slots first, under the new epoch: nothing that was begun before can be committed any more.
- Two drivers. The younger one's `init_transactions` fences the elder, which can write no head.
- A crash between produce and commit: the broker aborts the transaction, at the latest when the
  next task or driver takes its producer. An unknown outcome of a commit is a TransientError: the
  next attempt takes the producer, which ends the transaction one way or the other, and the
  checkpoint tells which.
- A commit that was answered may not be visible for a moment: readers here wait for the end of the
  log, not for the last stable offset.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataflow_assets.connectors.kafka.sink.checkpoint import CheckpointTopic
from dataflow_assets.connectors.kafka.sink.checkpoint_records import (
    KafkaStored,
    PartitionCheckpoint,
)
from dataflow_assets.contracts import (
    PartSlice,
    Position,
    Slice,
    Ticket,
    Totals,
    utc_now,
)
from dataflow_assets.sdk.sink.decide import check_planned, check_recorded


@dataclass(frozen=True)
class Claim:
    """One slice against head and checkpoint of its partition."""

    piece: Slice
    stored: KafkaStored

    @classmethod
    def read(cls, side_topic: CheckpointTopic, ticket: Ticket, piece: Slice) -> Claim:
        """To be called only after the producer was taken: what comes later is fenced.

        Raises TakenOver under another epoch, PermanentError where the checkpoint was moved.
        """
        head = side_topic.owned_head(ticket.epoch)
        if isinstance(piece, PartSlice):
            check_recorded(ticket.target.flow, piece, head.parts)
        slot = head.slots.get(piece.partition)
        checkpoint = None if slot is None else side_topic.checkpoint(slot)
        checkpoints = {} if checkpoint is None else {piece.partition: checkpoint}
        found = cls(piece, KafkaStored(head, checkpoints))
        check_planned(ticket.target.flow, piece, found.position)
        return found

    @property
    def position(self) -> Position | None:
        return self.stored.position(self.piece.partition)

    @property
    def slot(self) -> int:
        """The partition of the side topic that holds the checkpoint."""
        return self.stored.head.slots[self.piece.partition]

    @property
    def checkpoint(self) -> PartitionCheckpoint | None:
        return self.stored.current.get(self.piece.partition)

    def move(self, position: Position, epoch: int, counted: Totals) -> PartitionCheckpoint:
        head, old = self.stored.head, self.checkpoint
        totals = (old.totals if old else Totals()) + counted
        return PartitionCheckpoint(head.generation, position, head.serial, epoch, totals, utc_now())
