"""The `postgresql` sink as a manifest declares it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import field_validator
from typing_extensions import override

from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.errors import Failure
from dataflow_assets.connectors.postgresql.rejected.error_sink import PostgresqlErrors
from dataflow_assets.connectors.postgresql.rejected.replay import Waiting
from dataflow_assets.connectors.postgresql.settings import PostgresqlConnection
from dataflow_assets.connectors.postgresql.sink.session import PostgresqlSession
from dataflow_assets.connectors.postgresql.sink.writer import PostgresqlWriter
from dataflow_assets.connectors.postgresql.table import checkpoint_tables as store
from dataflow_assets.connectors.postgresql.table.table import Table
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
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.wrapped import METADATA
from dataflow_assets.sdk.database import ColumnName
from dataflow_assets.sdk.raw_rows import DATA
from dataflow_assets.sdk.table_frames import FrameSink, TableFrames
from dataflow_assets.sdk.upsert_options import SoftDeleteOptions
from dataflow_assets.spec import Needs, Requires

_TYPE = re.compile(
    r"[a-z_][a-z0-9_]*( [a-z_][a-z0-9_]*)*( ?\(\d+(, ?\d+)?\))?( with(out)? time zone)?(\[\])*",
    re.IGNORECASE,
)


class PostgresqlSink(SoftDeleteOptions, PostgresqlConnection, FrameSink):
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
    own_columns: ClassVar = frozenset(
        {DATA, METADATA, "id", "created_at", "updated_at", "deleted_at"}
    )
    longest_name: ClassVar = 63

    upsert_strategy: Annotated[
        Literal["always", "ifNewer"],
        Requires("upsert_mode", when="ifNewer"),
        Requires("upsert_version_column", when="ifNewer"),
    ] = "always"
    """`always`: the row that is read last replaces the stored one. `ifNewer`: only where its
    `upsertVersionColumn` is higher."""
    upsert_version_column: Annotated[ColumnName | None, Needs("upsert_strategy", "ifNewer")] = None
    """Required with `ifNewer`: only a higher version replaces a stored row."""

    @field_validator("columns")
    @classmethod
    def _declarable(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name, kind in value.items():
            if not _TYPE.fullmatch(kind.strip()):
                raise ValueError(f"{name}: not the name of a PostgreSQL type")
        return value

    @override
    @classmethod
    def keeps(cls, column: pa.Field) -> bool:
        """Where the target's database has it, too."""
        return True

    @override
    @classmethod
    def stored(cls, column: pa.Field) -> str:
        from dataflow_assets.connectors.postgresql.table.column_types import of_column

        return of_column(column).lower()

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        return PostgresqlSession(self, target, run)

    @override
    def peek(self, target: Target) -> Checkpoint | None:
        schema, _ = self.place()
        try:
            link = TextLink(self.dsn(), store.application(target))
            try:
                stored = None if store.missing(link, schema) else store.read(link, schema, target)
            finally:
                link.close()
        except Failure as failure:
            raise failure.error(f"reading the checkpoint of {self.address()}") from None
        return stored.state.checkpoint if stored and stored.state.known else None

    @override
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        return PostgresqlWriter(self, ticket, piece)

    @override
    def error_store(self) -> ErrorStore:
        return PostgresqlErrors(self)

    @override
    def rejected(self) -> Entries:
        return Waiting(self)

    @override
    def frames(self, namespace: str | None, table: str) -> TableFrames:
        """Tables of PostgreSQL. A write is one transaction; `overwrite` keeps the table itself."""
        from dataflow_assets.connectors.postgresql.frames import read, write
        from dataflow_assets.connectors.postgresql.frames.place import Place

        place = Place(self.dsn(), namespace or self.usual_schema(), table)
        return TableFrames(
            partial(read.read, place), partial(write.write, place), partial(read.describe, place)
        )

    def key(self, table: Table) -> tuple[str, ...]:
        """What rows are matched by, proved to be unique; empty for append."""
        if not self.upsert_mode:
            return ()
        key = self.conflict_key or table.primary
        if not key:
            raise PermanentError(
                f"upsertMode needs a key: table {self.table} has no primary key and the manifest "
                "no conflictKey"
            )
        indexes = [index for index in table.unique if set(index.names) == set(key)]
        if not indexes:
            raise PermanentError(
                f"upsertMode: table {self.table} has no unique index on exactly "
                f"({', '.join(key)}); run: {self._index(key)}"
            )
        if not all(index.alike for index in indexes):
            raise PermanentError(
                f"upsertMode: a unique index of table {self.table} on ({', '.join(key)}) compares "
                "by another collation or operator class than the columns themselves, so that "
                "inserts and deletes could find different rows; drop that index, or give the "
                "columns its collation"
            )
        return key

    def no_table(self) -> PermanentError:
        """Why there is nowhere to write, and the two ways out."""
        schema, name = self.place()
        return PermanentError(
            f"table {schema}.{name} does not exist at {self.address()}; create it, or set "
            "autoCreateTable: true"
        )

    def dropped(self) -> PermanentError:
        """The table went away under a run."""
        schema, name = self.place()
        return PermanentError(
            f"table {schema}.{name} of {self.address()} was dropped while the flow ran; create it "
            "again, or set autoCreateTable: true: the next run fills it from the start"
        )

    def _index(self, key: tuple[str, ...]) -> str:
        from dataflow_assets.connectors.postgresql.client import qualified, quote

        columns = ", ".join(map(quote, key))
        return f"CREATE UNIQUE INDEX ON {qualified(*self.place())} ({columns})"
