"""The `mysql` sink as a manifest declares it: MySQL and MariaDB."""

from __future__ import annotations

from typing import ClassVar, Literal

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.mysql import types
from dataflow_assets.connectors.mysql.options import MysqlSinkOptions
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
from dataflow_assets.sdk.sink.slice_commit import SliceWriter
from dataflow_assets.sdk.types.table import MakesColumns


class MysqlSink(MysqlSinkOptions, MakesColumns):
    """Rows into one table of MySQL or MariaDB: appended, or with `upsertMode` matched by a key.

    The table is one of InnoDB. An upsert finds the row by its key alone: a row of another key that
    has the same value in another unique index makes a rejected record.
    """

    type: ClassVar = "mysql"
    guarantee: ClassVar = (
        "Exactly once: the rows of a partition and the branch's checkpoint, in the table "
        "`dataflow_checkpoint` of the same database, are one transaction that asserts the epoch. "
        "Rejected records are stored in `dataflow_rejected`, in that transaction too."
    )
    commits: ClassVar[Literal["slice", "span"]] = "slice"
    adds_columns: ClassVar[bool] = True

    @override
    @classmethod
    def stored_type(cls, column: pa.Field, *, own: bool = False) -> str | None:
        return None if own else types.declaration(column).lower()

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        from dataflow_assets.connectors.mysql.sink.session import MysqlSinkSession

        return MysqlSinkSession(self, target, run)

    @override
    def peek(self, target: Target) -> Checkpoint | None:
        from dataflow_assets.connectors.mysql.sink.checkpoint import peek

        return peek(self, target)

    @override
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        from dataflow_assets.connectors.mysql.sink.writer import MysqlSliceStore

        return SliceWriter(ticket, piece, MysqlSliceStore(self, ticket, piece))

    @override
    def error_store(self) -> ErrorStore:
        from dataflow_assets.connectors.mysql.rejected.error_sink import error_table

        return error_table(self)

    @override
    def rejected_entries(self) -> Entries:
        from dataflow_assets.connectors.mysql.rejected.error_sink import rejected_table

        return rejected_table(self)
