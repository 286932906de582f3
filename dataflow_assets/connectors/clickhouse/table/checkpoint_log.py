"""Exactly once without transactions: what is recorded before and after each INSERT.

ClickHouse gives two things. An INSERT of one block stands whole or not at all, and of all INSERTs
with the same `insert_deduplication_token` only the first stands, for as long as the table remembers
the token. The log, a table of rows that are only ever added, makes a checkpoint of these two:

    head    an epoch and who has it; positions, totals and identities as they were known by then
    chunk   how far the rows from a position on go; recorded BEFORE they are inserted
    whole   a chunk ends earlier after all: its last records are gone from the source, or the
            table refuses one at which the flow stops
    done    the rows of a chunk are in, and what was counted; recorded after the INSERT

1. Of rows with one key the first stands. The key is the token of the row's own INSERT; whoever
   records one reads back whose it is and follows that.
2. The border of a chunk is what its writer has *seen*, never what was planned: input that ends
   early makes a shorter chunk. Its token is made of both borders, so a chunk that is not done can
   be read and inserted again by anybody: as long as the token is remembered it stands once. It is
   only inserted by a writer that has seen its last record: a part of it would use up the token.
3. The next chunk begins where the last one was done.
4. Whoever reads the head of a newer epoch stops. What an older epoch still has under way can only
   be the same chunks under the same tokens.
5. New starting positions are a new generation: its chunks have keys and tokens of their own.

Parts of a bounded read are chunks too; their borders are those that the head's intent names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from dataflow_assets.contracts import Checkpoint, PartSlice, Position, Positions, Totals
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.sink.decide import resume
from dataflow_assets.sdk.sink.state import BranchState

HEAD, CHUNK, WHOLE, DONE = "head", "chunk", "whole", "done"
Key = tuple[str | int, ...]


@dataclass(frozen=True)
class ClickhousePartition:
    """What was consumed of one partition, and counted."""

    position: Position | None
    totals: Totals = Totals()
    at: datetime | None = None
    """When the last of it was committed."""
    version: int = 0
    """Of its last chunk."""


@dataclass(frozen=True)
class ClickhouseIntent:
    """The parts of a bounded read, and the moment that its steps take for now."""

    id: str
    at: datetime
    blocks: int
    """Blocks that the table had been given by then."""
    parts: tuple[PartSlice, ...]


@dataclass(frozen=True)
class Border:
    """Where a chunk ends, and what decides whether it can be inserted again."""

    upto: Position
    at: datetime
    """What its steps take for now."""
    blocks: int
    """Blocks that the table had been given by then."""
    version: int
    """Which of two rows of one key is newer, where the table asks."""
    digest: str = ""
    """Of the rows, where they go into several partitions of the table."""
    empty: bool = False
    """True: nothing stands between the borders, so there is nothing to be done."""


@dataclass(frozen=True)
class ClickhouseDone:
    """What was counted in a chunk."""

    totals: Totals
    at: datetime


@dataclass(frozen=True)
class ClickhouseHead:
    """One branch as its driver knew it when the row was recorded."""

    epoch: int = 0
    n: int = 0
    run: str = ""
    host: str = ""
    generation: str = ""
    source: str | None = None
    target: str | None = None
    manifest: str = ""
    totals: Totals = Totals()
    """What no partition counts any more."""
    partitions: Mapping[str, ClickhousePartition] = field(default_factory=dict)
    intent: ClickhouseIntent | None = None
    version: int = 0
    """The highest version of chunks that no partition tells of any more."""
    emptying: bool = False
    """The table is about to be emptied; whoever opens next does it again."""
    exit: str = ""
    """The table that its rows are moved into before they are gone (sink/empty_table.py)."""
    reading: int = 0
    """Another one after each restart."""

    @property
    def place(self) -> tuple[int, int]:
        return self.epoch, self.n


@dataclass(frozen=True)
class ClickhouseEntry:
    """A row of the log. `value` is JSON; `writer` tells rows of one key from each other."""

    kind: str
    value: bytes
    writer: str
    epoch: int = 0
    n: int = 0
    generation: str = ""
    partition: str = ""
    after: str = ""

    @property
    def key(self) -> Key:
        """Of rows with the same key only the first stands."""
        if self.kind == HEAD:
            return self.kind, self.epoch, self.n
        return self.kind, self.generation, self.partition, self.after


@dataclass(frozen=True)
class ClickhouseState:
    """What the rows of one branch say."""

    head: ClickhouseHead
    writer: str
    """Who recorded the head."""
    partitions: Mapping[str, ClickhousePartition]
    pending: Mapping[str, Border]
    """Chunks that may have been inserted, and are not known to be."""
    whole: Mapping[str, int]
    """Where pending chunks end by now."""

    @property
    def version(self) -> int:
        consumed = [one.version for one in self.partitions.values()]
        begun = [one.version for one in self.pending.values()]
        return max([self.head.version, *consumed, *begun])

    @property
    def branch(self) -> BranchState:
        head, parts = self.head, self.partitions
        checkpoint = Checkpoint(
            head.epoch,
            {n: p.position for n, p in parts.items() if p.position is not None},
            sum((p.totals for p in parts.values()), head.totals),
            head.source,
            head.target,
            head.manifest,
            head.run,
            max((p.at for p in parts.values() if p.at), default=None),
            head.reading,
        )
        return BranchState(checkpoint, head.intent.parts if head.intent else ())

    @property
    def checkpoint(self) -> Checkpoint:
        """Returns what is stored, without the parts of a bounded read."""
        return self.branch.checkpoint

    def snapshot(self) -> ClickhouseHead:
        """A head that says the same without the rows before it."""
        return replace(self.head, partitions=dict(self.partitions))

    def restart(self, positions: Positions) -> ClickhouseHead:
        """A head that begins at these positions; what was counted stays counted."""
        return replace(
            self.head,
            totals=self.checkpoint.totals,
            partitions={name: ClickhousePartition(where) for name, where in positions.items()},
            intent=None,
            version=self.version,
        )

    def divide(self, parts: tuple[PartSlice, ...]) -> ClickhouseHead:
        """A head whose bounded read has these parts; what it was divided into before is left."""
        open_intent = self.head.intent
        assert open_intent is not None  # noqa: S101 - nothing else is divided
        left = {part.partition for part in open_intent.parts} - {part.partition for part in parts}
        partitions = {name: one for name, one in self.partitions.items() if name not in left}
        intent = replace(open_intent, parts=parts)
        return replace(self.head, partitions=partitions, intent=intent, version=self.version)

    @property
    def parts(self) -> tuple[PartSlice, ...]:
        """Returns those of the intent; what is done is empty."""
        return resume(self.branch.intent, self.branch.positions)

    def after(self, partition: str) -> str:
        """Returns where the next chunk of a partition begins, as it stands in its key."""
        position = self.partitions[partition].position
        return place(position, self.head.intent.id if self.head.intent else "")


def fold(entries: Iterable[ClickhouseEntry]) -> ClickhouseState:
    """The state of a branch from its rows, the oldest first."""
    first: dict[Key, ClickhouseEntry] = {}
    for entry in entries:
        first.setdefault(entry.key, entry)
    heads = [entry for entry in first.values() if entry.kind == HEAD]
    latest = max(heads, key=lambda entry: (entry.epoch, entry.n), default=None)
    head = load(latest.value, ClickhouseHead) if latest else ClickhouseHead()
    walk = _ClickhouseWalk(first, head.generation, head.intent.id if head.intent else "")
    partitions = {name: walk.walk(name, part) for name, part in head.partitions.items()}
    for part in head.intent.parts if head.intent else ():
        walked = walk.walk(
            part.partition, partitions.get(part.partition, ClickhousePartition(None))
        )
        partitions[part.partition] = walked
    return ClickhouseState(
        head, latest.writer if latest else "", partitions, walk.pending, walk.whole
    )


class _ClickhouseWalk:
    """From chunk to chunk, as far as they are done."""

    def __init__(self, first: Mapping[Key, ClickhouseEntry], generation: str, intent: str) -> None:
        self._first = first
        self._generation = generation
        self._intent = intent
        self.pending: dict[str, Border] = {}
        self.whole: dict[str, int] = {}

    def walk(self, name: str, part: ClickhousePartition) -> ClickhousePartition:
        while border := self._get(CHUNK, name, part, Border):
            done = self._get(DONE, name, part, ClickhouseDone)
            if done is None and not border.empty:
                self.pending[name] = border
                self._note_whole(name, part)
                break
            part = self._move(name, part, border, done)
        return part

    def _move(
        self, name: str, part: ClickhousePartition, border: Border, done: ClickhouseDone | None
    ) -> ClickhousePartition:
        upto = self._get(WHOLE, name, part, int) or border.upto
        totals = part.totals + (done.totals if done else Totals())
        return ClickhousePartition(upto, totals, done.at if done else border.at, border.version)

    def _note_whole(self, name: str, part: ClickhousePartition) -> None:
        seen = self._get(WHOLE, name, part, int)
        if seen is not None:
            self.whole[name] = seen

    def _get(self, kind: str, name: str, part: ClickhousePartition, type_: type[Any]) -> Any:
        where = place(part.position, self._intent)
        entry = self._first.get((kind, self._generation, name, where))
        return load(entry.value, type_) if entry else None


def place(position: Position | None, intent: str) -> str:
    """A position as it stands in keys; parts have none before they are done, but their intent."""
    return intent if position is None else str(position)


def dump(value: Any) -> bytes:
    return msgspec.json.encode(value)


def load(value: bytes, type_: type[Any]) -> Any:
    """Read back; what a later version has added is passed over."""
    return decode_json(value, type_)
