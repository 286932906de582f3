"""`IcebergSink` and `NessieSink`: rows into one table of a catalog, exactly once."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from datetime import timedelta
from functools import partial
from typing import ClassVar, Literal, Self

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.iceberg.nessie import MAIN, NessieConnection
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.rest import RestConnection
from dataflow_assets.contracts import (
    Checkpoint,
    Entries,
    ErrorStore,
    PeeksTogether,
    Positions,
    Run,
    SinkSession,
    Slice,
    Target,
    Ticket,
    Writer,
)
from dataflow_assets.errors import DataflowError
from dataflow_assets.sdk.maintenance import Keep, Maintained, Tidied
from dataflow_assets.sdk.sink.slice_commit import SliceWriter
from dataflow_assets.sdk.table_frames import FrameSink, TableFrames
from dataflow_assets.sdk.types.table import MakesColumns


class TableSink(TableSinkOptions, FrameSink, MakesColumns, PeeksTogether):
    """What is the same for a table of any catalog."""

    commits: ClassVar[Literal["slice", "span"]] = "span"
    text_bodies: ClassVar[bool] = True
    adds_columns: ClassVar[bool] = True

    def open(self, target: Target, run: Run) -> SinkSession:
        """One commit to a table that exists: taking the epoch moves its head."""
        from dataflow_assets.connectors.iceberg.sink.session import IcebergSinkSession

        return IcebergSinkSession(self, target, run)

    @property
    def connection_group(self) -> Hashable:
        return json.dumps(self.catalog_properties(), sort_keys=True)

    @classmethod
    def peek_together(
        cls, asked: Sequence[tuple[Self, Target]]
    ) -> list[Checkpoint | DataflowError | None]:
        """One table after the other, over one connection to the catalog."""
        from dataflow_assets.connectors.iceberg.sink.checkpoint import peek_together

        return peek_together(asked)

    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        """Writes below the table's location; it does not ask the catalog."""
        from dataflow_assets.connectors.iceberg.sink.writer import IcebergSliceStore, WriteTicket

        if not isinstance(ticket, WriteTicket):
            raise TypeError(f"an Iceberg writer needs a ticket of its own session, not {ticket!r}")
        return SliceWriter(ticket, piece, IcebergSliceStore(self, ticket, piece))

    def error_store(self) -> ErrorStore:
        """Error records as rows of the table: at least once, by id."""
        from dataflow_assets.connectors.iceberg.rejected.error_sink import error_table

        return error_table(self)

    def rejected_entries(self) -> Entries:
        from dataflow_assets.connectors.iceberg.rejected.error_sink import rejected_table

        return rejected_table(self)

    def frames(self, namespace: str | None, table: str) -> TableFrames:
        """Tables of the catalog. A write is one commit."""
        from dataflow_assets.connectors.iceberg.frames import read, write

        update = {"namespace": namespace or self.namespace, "table": table}
        sink = self.model_copy(update=update)
        return TableFrames(
            partial(read.read, sink), partial(write.write, sink), partial(read.describe, sink)
        )

    @override
    @classmethod
    def stored_type(cls, column: pa.Field, *, own: bool = False) -> str | None:
        from dataflow_assets.connectors.iceberg.types import table_schema

        return str(table_schema([column]).fields[0].field_type)


class IcebergSink(RestConnection, TableSink, Maintained):
    """Appends rows to one table of an Iceberg REST catalog, or merges them into it by a key.

    Without `upsertMode` deletes are rejected records. With it the last row of a key wins, and
    columns that a record does not carry keep their values; the files that hold changed rows are
    written again (copy on write).

    Nested objects and lists become struct and list columns, other than in the DataFlow Operator,
    whose tables have one string column `data`; `rawMode` keeps bodies as text. `autoCreateTable`
    creates a missing namespace too; types in `columns` are Iceberg's, such as `decimal(10,2)`.
    """

    type: ClassVar[str] = "iceberg"
    guarantee: ClassVar[str] = (
        "Exactly once: files and checkpoint are one commit that asserts the table's head, so that "
        "of two drivers on one span only one succeeds; with `upsertMode` the same commit takes out "
        "the files that were rewritten. Rejected records go to the table "
        "`<table>_rejected` beside it before the rows: at least once, by id."
    )

    def maintain(self, keep: Keep, readers: Sequence[Positions]) -> list[Tidied]:
        """Snapshots expire; files that no snapshot lists are deleted."""
        from dataflow_assets.connectors.iceberg.maintenance.maintain import maintain

        return maintain(self, keep, readers)


class NessieSink(NessieConnection, TableSink):
    """Appends rows to one table on a branch of Nessie, or merges them into it by a key.

    Each micro-batch is one commit of the branch. Without `upsertMode` deletes are rejected records.
    With it the last row of a key wins, and columns that a record does not carry keep their values;
    the files that hold changed rows are written again (copy on write).

    Nested objects and lists become struct and list columns, other than in the DataFlow Operator,
    whose tables have one string column `data`; `rawMode` keeps bodies as text. `autoCreateTable`
    creates a missing namespace too; types in `columns` are Iceberg's, such as `decimal(10,2)`.
    """

    type: ClassVar[str] = "nessie"
    icon: ClassVar[str] = "iceberg"
    snapshots_stay: ClassVar[timedelta | None] = None
    """Files belong to all branches: Nessie's own collector knows which nobody needs."""
    guarantee: ClassVar[str] = (
        "Exactly once: files and checkpoint are one commit that asserts the table's head, so that "
        "of two drivers on one span only one succeeds; with `upsertMode` the same commit takes out "
        "the files that were rewritten. A table has a first snapshot before it has rows, for "
        "Nessie does not assert that there is none. Rejected records go to the table "
        "`<table>_rejected` beside it before the rows: at least once, by id."
    )

    @override
    def frames(self, namespace: str | None, table: str) -> TableFrames:
        """Tables of a Nessie server, on `main` or, as `orders@dev`, on another branch."""
        name, _, branch = table.partition("@")
        here = self.model_copy(update={"branch": branch or MAIN})
        return super(NessieSink, here).frames(namespace, name)
