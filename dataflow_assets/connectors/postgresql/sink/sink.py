"""The `postgresql` sink as a manifest declares it, and as languages with a password beside do."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal, Self

import pyarrow as pa
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr
from typing_extensions import override

from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.rejected.error_sink import PostgresqlErrors
from dataflow_assets.connectors.postgresql.rejected.table import rejected_table
from dataflow_assets.connectors.postgresql.sink.checkpoint import peek_together
from dataflow_assets.connectors.postgresql.sink.session import PostgresqlSinkSession
from dataflow_assets.connectors.postgresql.sink.writer import PostgresqlSliceStore
from dataflow_assets.connectors.postgresql.table.column_types import of_column
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
from dataflow_assets.sdk.sink.slice_commit import SliceWriter
from dataflow_assets.sdk.table_frames import FrameSink, TableFrames
from dataflow_assets.sdk.types.table import MakesColumns
from dataflow_assets.secrets import Fills, SecretRef


class PostgresqlSink(PostgresqlSinkOptions, FrameSink, MakesColumns, PeeksTogether):
    """Rows into one PostgreSQL table: appended, or with `upsertMode` matched by a key.

    Upserts are `INSERT ... ON CONFLICT ... DO UPDATE`.
    """

    type: ClassVar = "postgresql"
    guarantee: ClassVar = (
        "Exactly once: the rows of a partition and its checkpoint, in the table "
        "`dataflow_checkpoint` of the same schema, are one transaction that asserts the epoch. "
        "Rejected records are stored in `dataflow_rejected`, in that transaction too."
    )
    commits: ClassVar[Literal["slice", "span"]] = "slice"
    adds_columns: ClassVar[bool] = True

    @override
    @classmethod
    def stored_type(cls, column: pa.Field, *, own: bool = False) -> str | None:
        """Returns None for PostgreSQL's own: a table gets the type where its database has it."""
        return None if own else of_column(column).lower()

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        return PostgresqlSinkSession(self, target, run)

    @property
    @override
    def connection_group(self) -> Hashable:
        return self.dsn()

    @override
    @classmethod
    def peek_together(
        cls, asked: Sequence[tuple[Self, Target]]
    ) -> list[Checkpoint | DataflowError | None]:
        return peek_together(asked)

    @override
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        return SliceWriter(ticket, piece, PostgresqlSliceStore(self, ticket, piece))

    @override
    def error_store(self) -> ErrorStore:
        return PostgresqlErrors(self)

    @override
    def rejected_entries(self) -> Entries:
        return rejected_table(self)

    @override
    def frames(self, namespace: str | None, table: str) -> TableFrames:
        """Tables of PostgreSQL. A write is one transaction; `overwrite` keeps the table itself."""
        from dataflow_assets.connectors.postgresql.frames import read, write
        from dataflow_assets.connectors.postgresql.frames.frame_table import PostgresqlFrameTable
        from dataflow_assets.connectors.postgresql.sink.encode_copy import textual

        place = PostgresqlFrameTable(self.dsn(), namespace or self.usual_schema(), table)
        return TableFrames(
            partial(read.read, place),
            partial(write.write, place, encode=textual),
            partial(read.describe, place),
        )


class LoginSink(PostgresqlSink):
    """A PostgreSQL sink with a password of its own, which may be a reference.

    Made by the manifest languages `justone` and `sql`; DataFlow manifests do not name it.
    """

    password: SecretStr | None = None
    """Password of the connection string's user."""
    password_secret_ref: Annotated[SecretRef | None, Fills("password")] = None
    """Secret, or variable, with the password."""

    @override
    def dsn(self) -> str:
        text = super().dsn()
        if self.password is None:
            return text
        password = self.password.get_secret_value()
        return make_conninfo("", **{**dsn.parse(text), "password": password})
