"""The declared sink of a flow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa

from dataflow_assets.contracts.checkpoint import Checkpoint, Run
from dataflow_assets.contracts.entries import Entries, ErrorSink
from dataflow_assets.contracts.sink_session import SinkSession
from dataflow_assets.contracts.slices import Positions, Slice
from dataflow_assets.contracts.target import Target
from dataflow_assets.contracts.tasks import Ticket, Writer
from dataflow_assets.errors import DataflowError, PermanentError, outcome
from dataflow_assets.records.record import Record
from dataflow_assets.spec import Addition


class Shape(ABC):
    """What a sink stores of a record where that is not simply its body (raw mode).

    Made once per slice, inside the task.
    """

    reads: ClassVar[frozenset[str]] = frozenset()
    """The metadata keys that it looks at."""

    def __init__(self) -> None:
        self.notes: set[str] = set()
        """What a person should be told once."""

    @abstractmethod
    def __call__(self, record: Record) -> Any:
        """Returns what the sink stores of a record.

        Called inside tasks, once for each record.

        Returns:
            A JSON object of the sink's columns; of a null message its own body.

        Raises:
            RejectedRecord("encode", reason).
        """

    def key(self, record: Record) -> dict[str, Any]:  # noqa: ARG002 - what overrides need
        """The columns by which the row of a record is matched, where it upserts.

        Called inside tasks for each record that deletes its row.

        Returns:
            A JSON object; empty where rows are appended.

        Raises:
            RejectedRecord("encode", reason).
        """
        return {}


@dataclass(frozen=True)
class SinkTraits:
    """A declared sink describes itself to whoever plans, decodes and commits for it."""

    upserts: bool = False
    """Rows are matched by a key: a record that is read twice is stored once. Else it appends."""
    takes_deletes: bool = True
    """A delete removes or marks a row, or is a row of its own; False: it is a rejected record."""
    ignores_case: bool = False
    """A key or column may have other capitals than the target's column; else names are exact."""
    unwraps: bool = False
    """A body `{"value": {...}, "_metadata": ...}` stands for the object inside it."""
    replaces_whole_rows: bool = False
    """A row or message takes the place of the whole one of its key: what is missing in it is lost.
    The rows of its chunks say in the column UNKNOWN what their source does not know of them."""
    needs_sample: bool = True
    """Records tell the columns of a table that is still to be made: `SinkSession.create` waits for
    the first ones. Else it is called when the branch opens, with a sample without columns."""
    reads_null_keys: bool = False
    """It looks into the keys of null messages, for a key of its own; else it gets all keys as they
    were sent. Only of sinks that take messages."""
    record_time: str | None = None
    """The column that takes the time which each message carries, and no body has. Only flows
    without steps write into such sinks."""
    flush_seconds: float = 0.0
    """The least seconds between two commits of spans that are not full; 0 for no such bound."""


class Sink(ErrorSink):
    """A declared sink."""

    unknown_fields: Annotated[Literal["reject", "ignore"], Addition()] = "reject"
    """A key of the record without a column in the target: reject the record, or leave it out."""
    adds_columns: ClassVar[bool] = False
    """Whether its sessions can add columns to a table that exists (`AddsColumns`)."""
    takes: ClassVar[Literal["columns", "messages"]] = "columns"
    """`messages`: bodies, keys and headers byte for byte, in the schema MESSAGES. A null value is a
    tombstone; a row of OP DELETE keeps its body, for the sink to find the key in."""
    commits: ClassVar[Literal["slice", "span"]]
    """`slice`: rows and checkpoint in `Writer.close`; `span`: files staged, published by finish."""

    @property
    def traits(self) -> SinkTraits:
        """Returns what it declares of itself, by its options.

        Read when manifests are loaded, by the driver, and inside tasks once for each slice.
        """
        return SinkTraits()

    @abstractmethod
    def open(self, target: Target, run: Run) -> SinkSession:
        """Connects, makes the checkpoint's storage, takes a new epoch.

        Called by the driver once for each branch and attempt of a run.

        Args:
            target: the branch, by which its checkpoint is found.
            run: who drives, for takeover errors.

        Raises:
            TransientError when the sink cannot be reached; PermanentError when a person must act.
        """

    @abstractmethod
    def peek(self, target: Target) -> Checkpoint | None:
        """The stored checkpoint, read only: no epoch is taken.

        Called once each by `dataflow reset`, previews, replays and whoever reads the table as an
        asset, each in a process of its own, while a run may be active. Sensors and `dataflow
        status` call `peek_together`.

        Args:
            target: the branch, by which its checkpoint is found.

        Returns:
            None where nothing is stored, and where there is no table yet.

        Raises:
            TransientError when the sink cannot be reached; PermanentError when a person must act.
        """

    @classmethod
    def peek_together(
        cls, asked: Sequence[tuple[Self, Target]]
    ) -> list[Checkpoint | DataflowError | None]:
        """The stored checkpoints of many branches whose sinks have an equal `shared`.

        Called by whoever looks at many flows. By default one `peek` after the other.

        Args:
            asked: each branch with its sink.

        Returns:
            For each what `peek` would have returned, or the error that it would have raised: what
            is wrong with one table is no other's error.

        Raises:
            DataflowError where none of them could be asked.
        """
        return [outcome(partial(sink.peek, target)) for sink, target in asked]

    @abstractmethod
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        """A writer for one slice.

        Called inside a task, once for each slice; a repeated task makes another one.

        Args:
            ticket: from `SinkSession.ticket`, pickled.
            piece: the slice that the writer is for.

        Raises:
            TransientError when the sink cannot be reached; TakenOver when the ticket's epoch is
            over.
        """

    def inherited(self, target: Target) -> Positions | None:  # noqa: ARG002 - what overrides need
        """Where the program has stopped that has filled the table so far, for people to look at.

        Called by `dataflow status` and `preview` for a branch without a checkpoint; takes nothing.

        Args:
            target: the branch.

        Returns:
            A position for each partition that is known; None where nothing is.

        Raises:
            TransientError, PermanentError: the sink cannot be asked.
        """
        return None

    def stored_problems(self) -> Iterator[tuple[str | None, str]]:
        """Returns what is declared and cannot be done to what is stored.

        Called by `dataflow check` alone, which may take the time to look at the table.

        Returns:
            The id of a declared field, `partitioning`, or None for the columns as a whole, and a
            sentence about it.

        Raises:
            TransientError, PermanentError: the table cannot be looked at.
        """
        return iter(())

    def rejected(self) -> Entries:
        """The records that were rejected beside this sink (`onRejected: table`).

        Called by a replay, on the driver.

        Raises:
            PermanentError where they cannot be replayed.
        """
        raise PermanentError(f"rejected records of a {self.type} sink cannot be replayed")

    def shape(self, schema: pa.Schema | None) -> Shape | None:  # noqa: ARG002 - what overrides need
        """What is stored where it is not the record's own body, in a table with these columns.

        Called inside tasks once for each slice, and on the driver when a branch opens.

        Args:
            schema: of the table; None for the shape from which a table that does not exist yet gets
                its types: values may then be times too.

        Raises:
            PermanentError where the table does not fit.
        """
        return None

    @classmethod
    def stored(cls, column: pa.Field) -> str:
        """The type that `SinkSession.create` gives an interchange column, for docs/types.md.

        Called when the reference is generated, for each row of the table of types.

        Args:
            column: of an interchange type; with its `Kind` where text is more than text.

        Returns:
            The type as the system writes it.

        Raises:
            NotImplementedError: the sink takes messages and makes no columns.
        """
        raise NotImplementedError(f"{cls.type} makes no columns")

    @classmethod
    def keeps(cls, column: pa.Field) -> bool:  # noqa: ARG003 - what overrides need
        """Returns whether a table made for a column of the same system has its very type.

        Called when the reference is generated, for sources of the sink's own type.

        Args:
            column: as the source's `types` give it.

        Returns:
            True where the type is not that of `stored`, but the one that the source has read.
        """
        return False
