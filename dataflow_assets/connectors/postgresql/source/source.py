"""The `postgresql` source as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Self

import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import override

from dataflow_assets.connectors.postgresql.errors import Failure
from dataflow_assets.connectors.postgresql.settings import PostgresqlConnection
from dataflow_assets.contracts import SourceSession, TypeRow
from dataflow_assets.errors import DataflowError, PermanentError
from dataflow_assets.sdk.database import ColumnName
from dataflow_assets.sdk.polling import Part, PolledSource
from dataflow_assets.spec import Addition


class PostgresqlSource(PostgresqlConnection, PolledSource):
    """Reads a table or a query by polling: new and changed rows, in the order of their changes.

    A row is read again each time its change value has grown; deletes are not seen.
    """

    type: ClassVar = "postgresql"
    guarantee: ClassVar = (
        "Each row once for each of its change values; rows with equal ones are neither skipped nor "
        "repeated: a tick of the change column (a second, where values are cut to seconds) is read "
        "when it is over. Only a row that is committed late, with a change value that was passed "
        "already, is missed: `overlapSeconds` reads such rows where the sink upserts. Deletes are "
        "not seen."
    )
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"id", "operation"})
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "table": "the table as the manifest names it; a query without `table` has no such key",
        "id": "the row's value of `orderByColumn`",
        "operation": "`update` where `updated_at` is later than `created_at`, else `insert`",
    }

    change_tracking_column: ColumnName = "updated_at"
    """The column whose value grows with each change. A table without it is read by
    `orderByColumn` alone: new rows, no changes. Where `updated_at` is null, `created_at` counts."""
    order_by_column: ColumnName = "id"
    """Tells rows of one change value apart, and is their metadata `id`; best its primary key."""
    auto_create_table: bool = False
    """Make the table where it is missing, with `id`, `created_at` and `updated_at`."""
    overlap_seconds: Annotated[int, Field(ge=0), Addition()] = 0
    """Read the rows of so many seconds again: for transactions that commit late. The sink must
    upsert."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.overlap_seconds and self.verbatim:
            raise ValueError(
                "overlapSeconds needs changeTrackingColumn: without it a query is read as a whole"
            )
        return self

    @property
    @override
    def rereads(self) -> str:
        return super().rereads or ("overlapSeconds" if self.overlap else "")

    @property
    @override
    def overlap(self) -> int:
        return self.overlap_seconds

    @override
    def open(self, flow: str) -> SourceSession:
        from dataflow_assets.connectors.postgresql.source.session import PostgresqlSourceSession

        return PostgresqlSourceSession(self, flow)

    @override
    def read(
        self, part: Part, metadata: frozenset[str], most: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        from dataflow_assets.connectors.postgresql.source.read import read

        return read(self, part, metadata, most)

    @override
    @classmethod
    def types(cls) -> tuple[TypeRow, ...]:
        from dataflow_assets.connectors.postgresql.source.types import listed

        return listed()

    @override
    def no_table(self) -> PermanentError:
        return PermanentError(f"{super().no_table()}, or set autoCreateTable: true")

    def meaning(self, failure: Failure, what: str) -> DataflowError:
        """A failure while reading, for a person."""
        return failure.error(f"{what} {self.title}")
