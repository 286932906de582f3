"""The `postgresql` source as a manifest declares it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import override

from dataflow_assets.connectors.postgresql.failures import Failure
from dataflow_assets.connectors.postgresql.settings import Identifier, PostgresqlConnection
from dataflow_assets.contracts import PartSlice, Slice, Source, SourceSession, TypeRow
from dataflow_assets.errors import DataflowError, PermanentError
from dataflow_assets.polling import Part
from dataflow_assets.spec import Addition


class PostgresqlSource(PostgresqlConnection, Source):
    """Reads a table or a query by polling: new and changed rows, in the order of their changes.

    A row is read again each time its change value has grown; deletes are not seen.
    """

    type: ClassVar = "postgresql"
    guarantee: ClassVar = (
        "Each row once for each of its change values; rows with equal ones are neither skipped nor "
        "repeated. Only a row that is committed late, with a change value that was passed already, "
        "is missed: `overlapSeconds` reads such rows where the sink upserts. Deletes are not seen."
    )
    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "columns"
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"id", "operation"})
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "table": "the table as the manifest names it; a query without `table` has no such key",
        "id": "the row's value of `orderByColumn`",
        "operation": "`update` where `updated_at` is later than `created_at`, else `insert`",
    }

    query: str | None = None
    """A SELECT to read instead of the table. With `changeTrackingColumn` it is read like a table
    and must select that column and `orderByColumn`; without, each read is of all its rows."""
    poll_interval: int = Field(default=5, ge=0)
    """The least seconds between two looks for new rows; a run reads at once."""
    read_batch_size: int = Field(default=0, ge=0)
    """The most rows of a part of a micro-batch; 0 for no other bound than `maxRecordsPerBatch`."""
    change_tracking_column: Identifier = "updated_at"
    """The column whose value grows with each change. A table without it is read by
    `orderByColumn` alone: new rows, no changes. Where `updated_at` is null, `created_at` counts."""
    order_by_column: Identifier = "id"
    """Tells rows of one change value apart, and is their metadata `id`; best its primary key."""
    auto_create_table: bool = False
    """Make the table where it is missing, with `id`, `created_at` and `updated_at`."""
    overlap_seconds: Annotated[int, Field(ge=0), Addition()] = 0
    """Read the rows of so many seconds again: for transactions that commit late. The sink must
    upsert."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.query is not None and not self.query.strip(" ;\n\t"):
            raise ValueError("query is empty")
        if self.overlap_seconds and self.verbatim:
            raise ValueError(
                "overlapSeconds needs changeTrackingColumn: without it a query is read as a whole"
            )
        return self

    @property
    @override
    def does_without_table(self) -> bool:
        return self.query is not None

    @property
    def verbatim(self) -> bool:
        """True for a query that nothing orders: every read is of all its rows."""
        return self.query is not None and "change_tracking_column" not in self.model_fields_set

    @property
    @override
    def rereads(self) -> str:
        if self.verbatim:
            return "query, of which no changeTrackingColumn tells what is new"
        return "overlapSeconds" if self.overlap_seconds else ""

    @property
    @override
    def poll_seconds(self) -> float:
        return float(self.poll_interval)

    @property
    def title(self) -> str:
        """What is read, for people."""
        return f"{'query' if self.query else 'table'} of {self.address()}"

    @override
    def metadata(self, piece: Slice) -> dict[str, Any]:
        return {"table": self.table} if self.table else {}

    @override
    def open(self, flow: str) -> SourceSession:
        from dataflow_assets.connectors.postgresql.source_session import PostgresqlSourceSession

        return PostgresqlSourceSession(self, flow)

    @override
    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        from dataflow_assets.connectors.postgresql.reading import read

        assert isinstance(piece, PartSlice)  # noqa: S101 - this source plans nothing else
        return read(self, Part.parse(piece.part), metadata)

    @override
    @classmethod
    def types(cls) -> tuple[TypeRow, ...]:
        from dataflow_assets.connectors.postgresql.source_types import listed

        return listed()

    def no_table(self) -> PermanentError:
        """Why there is nothing to read, and the ways out."""
        return PermanentError(
            f"{self.title} does not exist: it was dropped, or never made. Create it, mend `table`, "
            "or set autoCreateTable: true"
        )

    def meaning(self, failure: Failure, what: str) -> DataflowError:
        """A failure while reading, for a person."""
        return failure.error(f"{what} {self.title}")

    @override
    def _named(self) -> tuple[str | None, str]:
        if self.names_table:
            return super()._named()
        digest = hashlib.sha256((self.query or "").encode()).hexdigest()
        return None, f"query_{digest[:8]}"
