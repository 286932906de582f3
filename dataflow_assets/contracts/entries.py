"""Rejected records where they are kept: what an error sink stores, and what a replay takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dataflow_assets.contracts.connector import Connector

EntryName = tuple[str, int]
"""An entry's id, and the reading of the source in which its record was rejected last."""


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
