"""What a branch has stored in its side topic: the driver's head, a checkpoint for each partition.

One compacted topic per flow and branch. Partition 0 holds the head, written by the driver's
producer alone; every partition of the source has a slot, a partition of the side topic that the
tasks of this partition write alone. A checkpoint moves in the transaction of its rows.

| record | written | holds |
|---|---|---|
| head | `open`, `begin`, `finish`, `restart`, `forget` | epoch, base positions, slots, intent |
| checkpoint | `Writer.close` | position reached, running totals, its generation and span |

Where a partition stands is the further of base and checkpoint. A restart begins a new *generation*:
checkpoints of older ones count no more, and what they have counted is counted by the head. The
*serial* numbers recorded intents: a part is done when its checkpoint carries that of the intent.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from dataflow_assets.contracts import (
    Checkpoint,
    PartSlice,
    Position,
    Run,
    Target,
    Totals,
)
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.sink.state import BranchState

HEAD = b"head"
FAMILY = "dataflow.checkpoints."
"""Begins the names of all side topics."""
_LONGEST = 150


def side_topic(target: Target) -> str:
    """The name of the branch's side topic; flows whose names look alike are kept apart."""
    readable = re.sub(r"[^a-zA-Z0-9_-]+", "-", target.id)[:_LONGEST]
    return f"{FAMILY}{readable}.{hashlib.sha256(target.id.encode()).hexdigest()[:12]}"


def producer_of(target: Target, partition: str | None = None) -> str:
    """The transactional id of the driver, or of the tasks of one source partition."""
    return target.id if partition is None else f"{target.id}:{partition}"


class PartitionCheckpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where one source partition stands, stored with the rows that brought it there."""

    generation: str
    position: int | str
    serial: int = 0
    epoch: int = 0
    totals: Totals = Totals()
    committed_at: datetime | None = None


class KafkaIntent(msgspec.Struct, frozen=True):
    """The parts of a bounded read as [partition, after, upto, part]."""

    parts: list[tuple[str, str | None, str, str]]

    @classmethod
    def of(cls, parts: Iterable[PartSlice]) -> KafkaIntent | None:
        """None where there is nothing to record."""
        found = [(p.partition, p.after, p.upto, p.part) for p in parts]
        return cls(found) if found else None


class KafkaHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """The driver's record."""

    generation: str
    epoch: int = 0
    run: str = ""
    host: str = ""
    flow: str = ""
    """Whose it is; the heads of earlier versions do not say so."""
    base: dict[str, int | str] = {}
    slots: dict[str, int] = {}
    totals: Totals = Totals()
    source: str | None = None
    target: str | None = None
    manifest: str = ""
    serial: int = 0
    intent: KafkaIntent | None = None
    emptied: dict[str, int] | None = None
    """Offsets below which the topic is to be emptied: what a crash must not leave undone."""
    committed_at: datetime | None = None
    reading: int = 0
    """Another one after each restart."""
    keys: str = ""
    """How keys of rows are written, by `key_spelling`; empty: as before there was this field."""

    @property
    def owner(self) -> str:
        """The run that has the epoch, as `Run` is printed."""
        return f"run {self.run} on host {self.host}" if self.run else ""

    @property
    def parts(self) -> tuple[PartSlice, ...]:
        return tuple(PartSlice(*part) for part in self.intent.parts) if self.intent else ()

    def slots_for(self, state: BranchState) -> dict[str, int]:
        """Partitions of offsets and parts have a slot each, which is never given to another."""
        offsets = [name for name, at in state.positions.items() if isinstance(at, int)]
        names = dict.fromkeys([*offsets, *(part.partition for part in state.intent)])
        new = [name for name in names if name not in self.slots]
        first = len(self.slots) + 1
        return self.slots | {name: first + number for number, name in enumerate(new)}


class KafkaStored(msgspec.Struct, frozen=True):
    """Everything that is stored for one branch; checkpoints by source partition."""

    head: KafkaHead
    checkpoints: Mapping[str, PartitionCheckpoint] = {}

    @property
    def current(self) -> dict[str, PartitionCheckpoint]:
        return {n: t for n, t in self.checkpoints.items() if t.generation == self.head.generation}

    @property
    def partition_totals(self) -> Totals:
        """The totals of the partitions themselves, on top of the head's."""
        return sum((checkpoint.totals for checkpoint in self.current.values()), Totals())

    @property
    def state(self) -> BranchState:
        head, checkpoints = self.head, self.current
        names = head.base.keys() | checkpoints.keys()
        found = {name: self.position(name) for name in sorted(names)}
        times = [
            head.committed_at,
            *(checkpoint.committed_at for checkpoint in checkpoints.values()),
        ]
        checkpoint = Checkpoint(
            head.epoch,
            {name: position for name, position in found.items() if position is not None},
            head.totals + self.partition_totals,
            source=head.source,
            target=head.target,
            manifest=head.manifest,
            run=head.owner,
            committed_at=max(filter(None, times), default=None),
            reading=head.reading,
        )
        return BranchState(checkpoint, head.parts)

    def position(self, partition: str) -> Position | None:
        """Where a partition stands; of a part that is not committed yet, nothing or its base."""
        base, checkpoint = self.head.base.get(partition), self.current.get(partition)
        if checkpoint is None:
            return base
        if isinstance(checkpoint.position, int):
            return max(checkpoint.position, base) if isinstance(base, int) else checkpoint.position
        of_intent = self.head.intent is not None and checkpoint.serial == self.head.serial
        return checkpoint.position if of_intent else base

    def move(self, state: BranchState, run: Run) -> KafkaHead:
        """The head by which this is the state; what partitions have stored stays as it is."""
        known, wanted, head = self.state, state.checkpoint, self.head
        moved = {  # what a part has stored counts no longer than its span is recorded
            name: at
            for name, at in state.positions.items()
            if isinstance(at, str) or known.positions.get(name) != at
        }
        committed = known.checkpoint.committed_at != wanted.committed_at
        return msgspec.structs.replace(
            head,
            epoch=wanted.epoch,
            run=run.id,
            host=run.place,
            base={n: at for n, at in head.base.items() if n in state.positions} | moved,
            slots=head.slots_for(state),
            totals=wanted.totals - self.partition_totals,
            source=wanted.source,
            target=wanted.target,
            manifest=wanted.manifest,
            serial=head.serial + (bool(state.intent) and not known.intent),
            intent=KafkaIntent.of(state.intent),
            committed_at=wanted.committed_at if committed else head.committed_at,
            reading=wanted.reading,
        )

    def restart(self, state: BranchState, run: Run) -> KafkaHead:
        """Begins another generation: what partitions have stored counts no more."""
        return msgspec.structs.replace(
            self.move(state, run),
            generation=new_generation(),
            base=dict(state.positions),
            totals=state.checkpoint.totals,
        )


def new_generation() -> str:
    """A name that no generation has had."""
    return uuid.uuid4().hex[:12]


def dump(record: KafkaHead | PartitionCheckpoint) -> bytes:
    """As the value of a Kafka record."""
    return msgspec.json.encode(record)


def load_head(value: bytes) -> KafkaHead:
    """From the value of a Kafka record."""
    return decode_json(value, KafkaHead)


def load_checkpoint(value: bytes) -> PartitionCheckpoint:
    """From the value of a Kafka record."""
    return decode_json(value, PartitionCheckpoint)
