"""Rejected records: what becomes of them, and where they wait for a replay."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from dataflow_assets.contracts.address import Address
from dataflow_assets.contracts.slices import PartSlice, Slice

if TYPE_CHECKING:
    from dataflow_assets.contracts.ends import Sink
    from dataflow_assets.contracts.tasks import Target

REPLAY = "#replay"  # ends the name of a branch that takes back what was rejected
Name = tuple[str, int]
"""An entry's id, and the reading of the source in which its record was rejected last."""
_PLACE = re.compile(r"/([^/]+)/(\d+)/\d+/\w+$")  # the end of what `Rejection.id` makes
_ATTEMPT = re.compile(r"#attempt-(\d+)(?:\.\d+)?$")
_ROW = re.compile(r"/\d+/\w+$")  # index and stage, at the end of what `Rejection.id` makes


@dataclass(frozen=True)
class ErrorRecord:
    """A rejected record as an error sink stores it. `id`: the same on every replay.

    `body`: JSON object with `error` and `original_message`; `metadata`: JSON.
    """

    id: str
    flow: str
    body: bytes = field(repr=False)
    metadata: bytes = field(repr=False)
    reading: int = 0


@dataclass(frozen=True)
class Entry:
    """A rejected record that waits for a replay.

    `reading` tells rejections of one record from each other: after a rewind it is rejected again.
    """

    id: str
    branch: str
    stage: str
    n: int
    body: bytes | None = field(repr=False)
    key: bytes | None = field(default=None, repr=False)
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False)
    rows: int | None = None
    """How many records its message had become; None: an earlier version did not count them."""
    reading: int = 0

    @property
    def name(self) -> Name:
        """What names it in the part of a replay."""
        return self.id, self.reading

    @property
    def first(self) -> str:
        """The id of its first attempt."""
        return _ATTEMPT.sub("", self.id)

    @property
    def message(self) -> str:
        """What the ids of all rejections of one message begin with, whatever the stage."""
        return _ROW.sub("", self.first)

    @property
    def place(self) -> tuple[str, int] | None:
        """Partition and offset of its record, as its id tells; None where that has another form."""
        found = _PLACE.search(self.first)
        return (found[1], int(found[2])) if found else None

    @property
    def token(self) -> str:
        """A short stand-in for its name."""
        text = f"{self.id}@{self.reading}" if self.reading else self.id
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Entries(ABC):
    """Rejected records where they are kept: what waits for a replay, and what has had one."""

    @abstractmethod
    def pending(self, flow: str, since: datetime | None, most: int) -> list[Entry]:
        """The oldest entries without a replay, of all branches of a flow; read only.

        Called by a replay, on the driver.

        Args:
            flow: `namespace/name`.
            since: only what was rejected from then on; None for all.
            most: how many at the most.
        """

    @abstractmethod
    def replayed(self, entries: Sequence[Entry]) -> None:
        """Notes that these entries have been replayed; may be repeated.

        Called by a replay after the commit of their rows. An entry that has been rejected again
        since, in a later reading of its source, goes on waiting.

        Args:
            entries: as `pending` returned them.
        """


class ErrorStore(Entries):
    """Where an error sink keeps error records: beside no checkpoint, known by their ids."""

    @abstractmethod
    def prepare(self) -> None:
        """Makes the table or topic, or checks that it fits.

        Called by the driver once for each attempt, before anything is read.

        Raises:
            PermanentError where it does not fit.
        """

    @abstractmethod
    def store(self, records: Sequence[ErrorRecord]) -> None:
        """Stores error records; they are durable when it returns.

        Called inside tasks, before the commit of the rows. A record whose id is known stays as it
        is where the system can tell; else a crash between here and the commit stores it twice,
        under one id. A record of a later reading than the known one waits for a replay once more.

        Raises:
            TransientError when the error sink cannot be reached: the commit waits for it.
        """


@dataclass(frozen=True)
class Rejects:
    """What becomes of a record that cannot be stored.

    `table`: it lands beside the target, in the same commit. `errors`: in the error sink, before
    the commit. `skip`: it is counted and logged. `fail`: the run stops at it. `holds`: it lands in
    the error sink, and the run stops at it all the same.
    """

    way: Literal["table", "errors", "skip", "fail"] = "table"
    sink: Sink | None = None
    holds: bool = False
    connection: str | None = None
    """What the error sink's connection is called in this location."""

    @property
    def address(self) -> Address | None:
        """Where the error sink is; None without one."""
        if self.sink is None:
            return None
        address = self.sink.address()
        return replace(address, connection=self.connection) if self.connection else address

    @property
    def fate(self) -> str:
        """What becomes of rejected records, as the end of a sentence about them."""
        if self.way == "errors":
            return f"are in the error sink {self.address}" + (
                ", and the flow stops at them" if self.holds else ""
            )
        return {
            "table": "stand in the table of rejected records",
            "skip": "are skipped: the log names them",
            "fail": "stop the flow",
        }[self.way]


@dataclass(frozen=True)
class Rejection:
    """One record that could not be stored, with its origin and the reason."""

    offset: int
    stage: str  # decode, step, encode or sink
    reason: str
    body: bytes | None
    n: int = 0
    key: bytes | None = None
    step: int | None = None
    """Index of the step that refused it, in `transformations`."""
    step_type: str | None = None
    """The type of that step."""
    error_type: str = ""
    """The DataFlow Operator's error class, where it is known; else it is told from the reason."""
    metadata: Mapping[str, Any] | None = None
    """The message's, as far as it was read."""
    rows: int = 1
    """How many records its message has become: `n` is the index of this one."""

    def id(self, target: Target, piece: Slice) -> str:
        """Flow, branch, source, partition, offset, n and stage: the same whenever it is read.

        Of what a replay rejects: the id of the entry that was replayed, and the attempt.
        """
        if isinstance(piece, PartSlice) and target.branch.endswith(REPLAY):
            return next_attempt(named_in(piece.part)[self.offset][0], self.n)
        where = f"{target.flow}/{target.branch}/{target.source_id or target.source}"
        return f"{where}/{piece.scope}/{self.offset}/{self.n}/{self.stage}"

    def reading(self, target: Target, piece: Slice) -> int:
        """In which reading of the source it was rejected; a replay keeps that of its entry."""
        if isinstance(piece, PartSlice) and target.branch.endswith(REPLAY):
            return named_in(piece.part)[self.offset][1]
        return target.reading


def part_of(entries: Sequence[Entry]) -> str:
    """What names these entries in a part; those of an earlier version have no reading."""
    return json.dumps([one.name if one.reading else one.id for one in entries])


@lru_cache(maxsize=4)
def named_in(part: str) -> tuple[Name, ...]:
    """The entries that a part names, by their ordinals."""
    return tuple((one, 0) if isinstance(one, str) else (one[0], one[1]) for one in json.loads(part))


def attempt_of(entry: str) -> int:
    """Which attempt an entry's id tells of, counted from 1."""
    found = _ATTEMPT.search(entry)
    return int(found[1]) if found else 1


def next_attempt(entry: str, n: int) -> str:
    """The id of what is rejected once more: of a whole entry, several rows may be."""
    row = f".{n}" if n else ""
    return f"{_ATTEMPT.sub('', entry)}#attempt-{attempt_of(entry) + 1}{row}"
