"""What a branch has stored in its side topic: the driver's head and one token per source partition.

One compacted topic per flow and branch. Partition 0 holds the head, written by the driver's
producer alone; every partition of the source has a slot, a partition of the side topic that the
tasks of this partition write alone. A token moves in the transaction of its rows.

| record | written | holds |
|---|---|---|
| head | `open`, `begin`, `finish`, `restart`, `forget` | epoch, base positions, slots, intent |
| token | `Writer.close` | position reached, running totals, generation and span it belongs to |

Where a partition stands is the further of base and token. A restart begins a new *generation*:
tokens of older ones count no more, and what they have counted is counted by the head. The *serial*
numbers recorded intents: a part is done when its token carries the serial of the intent.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import msgspec

from dataflow_assets.contracts import (
    Checkpoint,
    OffsetSlice,
    PartSlice,
    Position,
    Positions,
    Run,
    Slice,
    Span,
    Target,
    Totals,
    next_reading,
)

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


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where one source partition stands, stored with the rows that brought it there."""

    generation: str
    position: int | str
    serial: int = 0
    epoch: int = 0
    totals: Totals = Totals()
    committed_at: datetime | None = None


class Intent(msgspec.Struct, frozen=True):
    """The parts of a bounded read as [partition, after, upto, part]."""

    parts: list[tuple[str, str | None, str, str]]


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
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
    intent: Intent | None = None
    emptied: dict[str, int] | None = None
    """Offsets below which the topic is to be emptied: what a crash must not leave undone."""
    committed_at: datetime | None = None
    reading: int = 0
    """Another one after each restart."""

    def taken(self, run: Run, flow: str) -> Head:
        """The same under a new epoch."""
        host = f"{run.host} (pid {run.pid})"
        return msgspec.structs.replace(self, epoch=self.epoch + 1, run=run.id, host=host, flow=flow)

    def with_slots(self, span: Span) -> Head:
        """Every partition of the span has a slot of its own; slots are never given to another."""
        new = [s.partition for s in span.slices if s.partition not in self.slots]
        numbered = {name: len(self.slots) + 1 + i for i, name in enumerate(dict.fromkeys(new))}
        return msgspec.structs.replace(self, slots=self.slots | numbered)


class Stored(msgspec.Struct, frozen=True):
    """Everything that is stored for one branch; tokens by source partition."""

    head: Head
    tokens: Mapping[str, Token] = {}

    @property
    def current(self) -> dict[str, Token]:
        """The tokens that count."""
        return {n: t for n, t in self.tokens.items() if t.generation == self.head.generation}

    @property
    def known(self) -> bool:
        """False for a branch that never began, or was forgotten."""
        return bool(self.head.base) or self.head.source is not None

    @property
    def totals(self) -> Totals:
        """Of the whole branch."""
        return sum((token.totals for token in self.current.values()), self.head.totals)

    @property
    def checkpoint(self) -> Checkpoint:
        """Head and tokens as one."""
        head, tokens = self.head, self.current
        names = head.base.keys() | tokens.keys()
        found = {name: self.position(name) for name in sorted(names)}
        times = [head.committed_at, *(token.committed_at for token in tokens.values())]
        return Checkpoint(
            head.epoch,
            {name: position for name, position in found.items() if position is not None},
            self.totals,
            source=head.source,
            target=head.target,
            manifest=head.manifest,
            run=head.run,
            committed_at=max(filter(None, times), default=None),
            reading=head.reading,
        )

    def position(self, partition: str) -> Position | None:
        """Where a partition stands; of a part that is not committed yet, nothing or its base."""
        base, token = self.head.base.get(partition), self.current.get(partition)
        if token is None:
            return base
        if isinstance(token.position, int):
            return max(token.position, base) if isinstance(base, int) else token.position
        return token.position if self._open(token) else base

    def _open(self, token: Token) -> bool:
        """Whether the token is of the intent that is still recorded."""
        return self.head.intent is not None and token.serial == self.head.serial

    @property
    def span(self) -> Span | None:
        """The recorded parts, those committed already empty; None without an intent."""
        if self.head.intent is None:
            return None
        parts = [PartSlice(*part) for part in self.head.intent.parts]
        return Span(tuple(self._resumed(part) for part in parts))

    def _resumed(self, part: PartSlice) -> Slice:
        done = self.position(part.partition) == part.upto
        return replace(part, after=part.upto) if done else part

    def restarted(self, positions: Positions, source: str | None, target: str | None) -> Head:
        """The head of a new generation."""
        return msgspec.structs.replace(
            self.head,
            generation=new_generation(),
            base=dict(positions),
            totals=self.totals,
            source=source,
            target=target,
            intent=None,
            reading=next_reading(self.head.reading),
        )


def new_generation() -> str:
    """A name that no generation has had."""
    return uuid.uuid4().hex[:12]


def intent_of(span: Span) -> Intent | None:
    """What a bounded read has to record; None for spans of offsets, and where all is done."""
    parts = [s for s in span.slices if isinstance(s, PartSlice)]
    if all(part.empty for part in parts):
        return None
    return Intent([(p.partition, p.after, p.upto, p.part) for p in parts])


def gaps(span: Span, stored: Stored) -> dict[str, int]:
    """The ends of the offset slices that no token has reached: their last offsets are no rows."""
    slices = [s for s in span.slices if isinstance(s, OffsetSlice) and not s.empty]
    return {s.partition: s.upto for s in slices if not _reached(stored.position(s.partition), s)}


def _reached(position: Position | None, piece: OffsetSlice) -> bool:
    return isinstance(position, int) and position >= piece.upto


def dump(record: Head | Token) -> bytes:
    """As the value of a Kafka record."""
    return msgspec.json.encode(record)


def load_head(value: bytes) -> Head:
    """From the value of a Kafka record."""
    return msgspec.json.decode(value, type=Head)


def load_token(value: bytes) -> Token:
    """From the value of a Kafka record."""
    return msgspec.json.decode(value, type=Token)
