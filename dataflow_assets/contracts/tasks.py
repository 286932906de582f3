"""Inside a task: what a writer is given, and what it gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from dataflow_assets.contracts.checkpoint import Run, Totals
from dataflow_assets.contracts.place import Place
from dataflow_assets.contracts.slices import Position, Positions
from dataflow_assets.contracts.target import Target
from dataflow_assets.failpoints import Failpoint


@dataclass(frozen=True)
class Ticket:
    """What a task needs to write for one branch: frozen, picklable, valid for one epoch."""

    target: Target
    run: Run
    epoch: int
    schema: pa.Schema
    failpoint: Failpoint | None = None
    positions: Positions = field(default_factory=dict)
    """Those of the checkpoint, for tasks that do not load it: what lies below is stored already."""


@dataclass(frozen=True)
class Rejection:
    """One record that could not be stored, with its origin and the reason."""

    offset: int
    stage: str  # source, decode, step, encode or sink
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
    place: Place | None = None
    """Where its message is in a source of parts; None: partition and offset name the message."""

    def of(self, sent: Sent) -> Rejection:
        """The rejection with the message of its record.

        Called by writers inside tasks, for each row that their target refuses.

        Args:
            sent: the message, which `Chunk.sent` finds by the offset.

        Returns:
            The same rejection with what a replay needs.
        """
        key = self.key if sent.change is None else sent.change
        found = replace(self, body=sent.body, key=key, metadata=sent.metadata)
        return replace(found, rows=sent.rows, place=sent.place)


@dataclass(frozen=True)
class Sent:
    """A message as it was sent; `metadata` None: nobody has read it."""

    body: bytes | None
    metadata: Mapping[str, Any] | None = None
    rows: int = 1
    """How many records it has become."""
    place: Place | None = None
    """Where it is in a source of parts."""
    change: bytes | None = None
    """Of a table's row what the source knows beside the values, which a replay needs: that takes
    the place of the key, which such a row does not have."""


@dataclass(frozen=True)
class Chunk:
    """One step of a writer: rows in the sink's schema plus system columns, and what was refused.

    `seen` is the position reached: filtered and rejected records included. `size` counts the bytes
    of the bodies consumed, for totals only. `sent` finds the message of an offset when the sink
    refuses a row after all: a replay takes it through the steps again, by body and metadata.
    """

    rows: pa.RecordBatch
    rejected: Sequence[Rejection]
    seen: int
    size: int
    sent: Mapping[int, Sent] = field(default_factory=dict, repr=False)
    notes: frozenset[str] = frozenset()
    """What a person should be told once, and what is no error."""


@dataclass(frozen=True)
class Receipt:
    """What one writer did with one slice; the pass's only output.

    `position` is what is committed (sinks that commit in `close`) or consumed (sinks that publish
    in `finish`); None when nothing was. `staged` is the sink's own: JSON documents of the files
    that wait for `finish`.
    """

    branch: str
    partition: str
    position: Position | None
    totals: Totals
    staged: tuple[str, ...] = ()


class Writer(ABC):
    """Writes one slice of one branch inside one task. Not shared, not reused.

    The pass calls `write` for each chunk, then `close`, or `abort` after any error.
    """

    @abstractmethod
    def write(self, chunk: Chunk) -> None:
        """Takes the next rows. Nothing is visible to readers before `close`.

        Args:
            chunk: rows in the sink's schema, and what was refused before they got here.

        Raises:
            TransientError, PermanentError or TakenOver; never loses a row in silence: what the
            target refuses becomes a rejection that is stored with the same commit.
        """

    @abstractmethod
    def close(self, complete: bool) -> Receipt:
        """Commits (slice sinks) or stages (span sinks) what was written.

        Called once, after the last chunk.

        Args:
            complete: False where the end of the input cannot be trusted: an offset slice commits
                the prefix it has seen, a part slice commits only when complete.

        Returns:
            What was committed or staged, for the driver.

        Raises:
            TransientError when the answer to the commit is lost; TakenOver.
        """

    @abstractmethod
    def abort(self) -> None:
        """Drops what was written and frees the connection.

        Called after any error, and after `close`; safe twice.
        """
