"""The sinks that a manifest declares: one commits in its tasks, one publishes on the driver."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar, Literal

from dataflow_assets.connectors.memory.options import MemorySinkOptions
from dataflow_assets.connectors.memory.rejected.error_sink import MemoryErrors, beside
from dataflow_assets.connectors.memory.sink.session import (
    MemoryCheckpoints,
    MemorySpanCheckpoints,
    MemoryTable,
)
from dataflow_assets.connectors.memory.sink.writer import MemorySliceStore, MemorySpanStore
from dataflow_assets.contracts import (
    Checkpoint,
    Entries,
    ErrorStore,
    Run,
    SinkSession,
    Slice,
    Target,
    Ticket,
    Writer,
)
from dataflow_assets.sdk.sink.session import TransactionalSession
from dataflow_assets.sdk.sink.slice_commit import SliceWriter


class _MemorySink(MemorySinkOptions, ABC):
    _checkpoints: ClassVar[type[MemoryCheckpoints]]

    def open(self, target: Target, run: Run) -> SinkSession:
        store = self._checkpoints(self, target)
        return TransactionalSession(self, target, run, MemoryTable(self), store)

    def peek(self, target: Target) -> Checkpoint | None:
        state = self._checkpoints(self, target).load()
        return state.for_readers if state and state.is_known else None

    def error_store(self) -> ErrorStore:
        """Error records as rows of the table."""
        return MemoryErrors(self.store, self.table)

    def rejected_entries(self) -> Entries:
        """Returns those that were rejected beside the table."""
        return MemoryErrors(self.store, beside(self.table))


class MemorySliceSink(_MemorySink):
    """Commits rows and checkpoint of each slice in its task."""

    type: ClassVar[str] = "memory-slice"
    commits: ClassVar[Literal["slice", "span"]] = "slice"

    _checkpoints: ClassVar = MemoryCheckpoints

    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        return SliceWriter(ticket, piece, MemorySliceStore(self, ticket, piece))


class MemorySpanSink(_MemorySink):
    """Stages rows in tasks and publishes the span in `finish`."""

    type: ClassVar[str] = "memory-span"
    commits: ClassVar[Literal["slice", "span"]] = "span"

    _checkpoints: ClassVar = MemorySpanCheckpoints

    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        """A writer whose receipt carries the rows."""
        return SliceWriter(ticket, piece, MemorySpanStore(self, ticket, piece))
