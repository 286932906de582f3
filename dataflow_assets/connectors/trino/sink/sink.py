"""The `trino` sink as a manifest declares it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal, Self

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.trino import types
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.contracts import (
    Checkpoint,
    Entries,
    ErrorStore,
    PeeksTogether,
    Run,
    SinkSession,
    Slice,
    Target,
    Ticket,
    Writer,
)
from dataflow_assets.errors import DataflowError
from dataflow_assets.sdk.table_frames import FrameSink, TableFrames
from dataflow_assets.sdk.types.table import MakesColumns


class TrinoSink(TrinoSinkOptions, FrameSink, MakesColumns, PeeksTogether):
    """Rows into one table of any catalog of Trino: appended, or merged into it by a key.

    Each micro-batch is stored by one statement. Few rows are part of that statement; many rows are
    first put into a table `dataflow_stage_...` next to the target. When the flow opens, it tries
    out what the catalog can do.
    """

    type: ClassVar = "trino"
    guarantee: ClassVar[str] = (
        "Exactly once in a catalog with snapshots and MERGE, such as Iceberg's: the id of the "
        "query is stored before the query writes, the query writes only while nobody else has "
        "moved the checkpoint, and after a crash the id is looked for among the snapshots. In "
        "other catalogs appended rows are stored at least once: twice if Trino no longer knows a "
        "query whose end nobody has seen. Rejected records go to `<table>_rejected` before the "
        "rows: at least once, by id."
    )
    commits: ClassVar[Literal["slice", "span"]] = "span"

    @override
    @classmethod
    def stored_type(cls, column: pa.Field, *, own: bool = False) -> str | None:
        return types.declaration(column)

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        from dataflow_assets.connectors.trino.sink.session import TrinoSinkSession

        return TrinoSinkSession(self, target, run)

    @override
    @classmethod
    def peek_together(
        cls, asked: Sequence[tuple[Self, Target]]
    ) -> list[Checkpoint | DataflowError | None]:
        from dataflow_assets.connectors.trino.sink.checkpoint import peek_together

        return peek_together(asked)

    @override
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        from dataflow_assets.connectors.trino.sink.writer import (
            TrinoSliceStore,
            TrinoTicket,
            TrinoWriter,
        )

        if not isinstance(ticket, TrinoTicket):
            raise TypeError(f"a Trino writer needs a ticket of its own session, not {ticket!r}")
        return TrinoWriter(ticket, piece, TrinoSliceStore(self, ticket, piece))

    @override
    def error_store(self) -> ErrorStore:
        """Error records as rows of the table: at least once, by id."""
        from dataflow_assets.connectors.trino.rejected.error_sink import error_table

        return error_table(self)

    @override
    def rejected_entries(self) -> Entries:
        from dataflow_assets.connectors.trino.rejected.error_sink import rejected_table

        return rejected_table(self)

    @override
    def frames(self, namespace: str | None, table: str) -> TableFrames:
        """Tables of a catalog of Trino. A write is one statement."""
        from dataflow_assets.connectors.trino.frames.read import describe, read
        from dataflow_assets.connectors.trino.frames.write import write

        schema = namespace or self.usual_schema()
        sink = self.model_copy(update={"namespace": schema, "table": f'"{table}"'})
        return TableFrames(partial(read, sink), partial(write, sink), partial(describe, sink))

    @override
    def names_of_secrets(self) -> tuple[str | None, str] | None:
        return self.place() if self.namespace_secret_ref else None
