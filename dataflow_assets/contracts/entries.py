"""Rejected records where they are kept: what an error sink stores, and what a replay takes."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from dataflow_assets.contracts.connector import Connector

REPLAY = "#replay"  # ends the name of a branch that takes back what was rejected
EntryName = tuple[str, int]
"""An entry's id, and the reading of the source in which its record was rejected last."""
_PLACE = re.compile(r"/([^/]+)/(\d+)/\d+/\w+$")  # the end of what `Rejection.id` makes
_SAME_VALUES = re.compile(r"(?<!/)\*[0-9a-f]{32}(?:\.\d+)?$")  # `Place.row` behind values
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
    offset: int = 0
    """Of the record, or its number in its part: the order of those that were rejected at once."""

    @property
    def name(self) -> EntryName:
        """The name of the entry in the part of a replay.

        Returns:
            The id, and the reading in which the record was rejected last.
        """
        return self.id, self.reading

    @property
    def first(self) -> str:
        """Names one rejection through all of its replays.

        Returns:
            The id of the first attempt.
        """
        return _ATTEMPT.sub("", self.id)

    @property
    def message(self) -> str:
        """Groups the rejections of one message, whatever their stage.

        Rows that share the values of their place are one message here: a row of a table is known
        again although a column was added to the table since.

        Returns:
            What the ids of all of them begin with.
        """
        return _SAME_VALUES.sub("", _ROW.sub("", self.first))

    @property
    def place(self) -> tuple[str, int] | None:
        """Returns where the record was read.

        Returns:
            Partition and offset, by the id; None where the id has another form.
        """
        return place_of(self.id)

    @property
    def token(self) -> str:
        """A short stand-in for the name.

        Returns:
            16 hex digits.
        """
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
    def mark_replayed(self, entries: Sequence[Entry]) -> None:
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

        Args:
            records: of one slice and branch, at least one; ids may occur twice.

        Raises:
            TransientError when the error sink cannot be reached: the commit waits for it.
        """


class ErrorSink(Connector):
    """A declared sink as the place of a flow's rejected records (`spec.errors`)."""

    @abstractmethod
    def error_store(self) -> ErrorStore:
        """This sink as an error sink.

        Called by the driver once for each attempt, and inside tasks.

        Raises:
            PermanentError where the system cannot keep error records.
        """

    @abstractmethod
    def rejected_entries(self) -> Entries:
        """The records that were rejected beside this sink (`onRejected: table`).

        Called by a replay, on the driver.

        Raises:
            PermanentError where they cannot be replayed.
        """


def part_of(entries: Sequence[Entry]) -> str:
    """Names the entries of one part of a replay.

    Called by a replay when it plans, on the driver.

    Args:
        entries: of the part, by their ordinals.

    Returns:
        Text for `PartSlice.part`; entries of an earlier version have no reading in it.
    """
    return json.dumps([one.name if one.reading else one.id for one in entries])


@lru_cache(maxsize=4)
def named_in(part: str) -> tuple[EntryName, ...]:
    """Reads what `part_of` has written.

    Called inside tasks, for each rejected record of a replay.

    Args:
        part: `PartSlice.part` of a replay.

    Returns:
        The names of the entries, by their ordinals.
    """
    return tuple((one, 0) if isinstance(one, str) else (one[0], one[1]) for one in json.loads(part))


def place_of(entry: str) -> tuple[str, int] | None:
    """Tells where the record of an entry was read first.

    Args:
        entry: its id.

    Returns:
        Partition and offset; None where the record has a place of another kind.
    """
    found = _PLACE.search(_ATTEMPT.sub("", entry))
    return (found[1], int(found[2])) if found else None


def attempt_of(entry: str) -> int:
    """Counts the attempts of an entry.

    Called inside tasks for each rejected record, and on the driver for each entry of a replay.

    Args:
        entry: its id.

    Returns:
        The attempt that the id is of, counted from 1.
    """
    found = _ATTEMPT.search(entry)
    return int(found[1]) if found else 1


def next_attempt(entry: str, n: int) -> str:
    """Names what a replay rejects once more.

    Called inside tasks, for each record that a replay rejects.

    Args:
        entry: the id of the entry that was replayed.
        n: index of the row within the entry: several of them may be rejected.

    Returns:
        The id of the new entry.
    """
    row = f".{n}" if n else ""
    return f"{_ATTEMPT.sub('', entry)}#attempt-{attempt_of(entry) + 1}{row}"
