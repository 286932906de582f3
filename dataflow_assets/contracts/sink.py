"""The declared sink of a flow."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from dataflow_assets.contracts.checkpoint import Checkpoint, Run
from dataflow_assets.contracts.entries import ErrorSink
from dataflow_assets.contracts.sink_session import SinkSession
from dataflow_assets.contracts.slices import Slice
from dataflow_assets.contracts.target import Target
from dataflow_assets.contracts.tasks import Ticket, Writer
from dataflow_assets.spec import Addition


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
    whole_bodies: bool = False
    """Records are stored as whole bodies: their keys become no columns of the table."""
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
    folder: tuple[str, ...] = ()
    """The folder that it writes files to, in which no other flow's may lie: the store and the
    folders, from the outermost one. Empty where it writes none."""


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
        asset, each in a process of its own, and by sensors and `dataflow status` where the sink is
        no `PeeksTogether`, while a run may be active.

        Args:
            target: the branch, by which its checkpoint is found.

        Returns:
            None where nothing is stored, and where there is no table yet.

        Raises:
            TransientError when the sink cannot be reached; PermanentError when a person must act.
        """

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
