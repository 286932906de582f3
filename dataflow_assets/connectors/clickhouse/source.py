"""The `clickhouse` source as a manifest declares it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, StringConstraints, model_validator
from typing_extensions import override

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.failures import Failure
from dataflow_assets.connectors.clickhouse.settings import ClickhouseConnection
from dataflow_assets.contracts import PartSlice, Slice, Source, SourceSession, TypeRow
from dataflow_assets.errors import DataflowError, PermanentError
from dataflow_assets.polling import Part
from dataflow_assets.spec import Addition

Identifier = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]


class ClickhouseSource(ClickhouseConnection, Source):
    """Reads a table or a query by polling: new and changed rows, in the order of their changes.

    A row is read again each time its change value has grown. The tick of the change column that
    still runs (a second of a DateTime) is read when it is over.
    """

    type: ClassVar = "clickhouse"
    guarantee: ClassVar[str] = (
        "Each row exactly once per change value, as far as the table tells: bounds are fixed "
        "before anything is read, by the server's clock, and a part is stored whole or not at all. "
        "Values are compared to the last digit, so rows of one change value are neither skipped "
        "nor repeated. Deletes are not seen, nor rows that come with a value that was passed."
    )
    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "columns"
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"id"})
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "table": "the table as the manifest names it",
        "id": "the row's value of `orderByColumn`",
    }

    query: str | None = None
    """A SELECT to read instead of the table. With `changeTrackingColumn` it is read like a table
    and must select that column and `orderByColumn`; without, each read is of all its rows."""
    poll_interval: int = Field(default=5, ge=0)
    """The least seconds between two looks for new rows; a run reads at once."""
    order_by_column: Identifier = "id"
    """Tells rows of one change value apart, and is their metadata `id`; best a prefix of the
    table's sorting key."""
    change_tracking_column: Identifier = "created_at"
    """The column whose value grows with each change. A table without it is read by
    `orderByColumn` alone: new rows, no changes."""
    read_batch_size: int = Field(default=0, ge=0)
    """The most rows of a part of a micro-batch; 0 for no other bound than `maxRecordsPerBatch`."""
    final: Annotated[bool, Addition()] = False
    """Read with FINAL: of a ReplacingMergeTree the last row of each key, not all there are."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.query is not None and not self.query.strip(" ;\n\t"):
            raise ValueError("query is empty")
        if self.query is not None and self.final:
            raise ValueError("final is for tables; write FINAL into the query")
        return self

    @property
    @override
    def does_without_table(self) -> bool:
        return self.query is not None

    @property
    @override
    def poll_seconds(self) -> float:
        return float(self.poll_interval)

    @property
    def verbatim(self) -> bool:
        """True for a query that nothing orders: every read is of all its rows."""
        return self.query is not None and "change_tracking_column" not in self.model_fields_set

    @property
    @override
    def rereads(self) -> str:
        if self.verbatim:
            return "query, of which no changeTrackingColumn tells what is new"
        return ""

    @property
    def title(self) -> str:
        """What is read, for people."""
        return f"{'query' if self.query else 'table'} of {self.address()}"

    @override
    def metadata(self, piece: Slice) -> dict[str, Any]:
        return {"table": self.table} if self.table else {}

    @override
    @classmethod
    def types(cls) -> tuple[TypeRow, ...]:
        return types.rows()

    @override
    def open(self, flow: str) -> SourceSession:
        from dataflow_assets.connectors.clickhouse.source_session import ClickhouseSourceSession

        return ClickhouseSourceSession(self, flow)

    @override
    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        from dataflow_assets.connectors.clickhouse.reading import read

        assert isinstance(piece, PartSlice)  # noqa: S101 - this source plans nothing else
        return read(self, Part.parse(piece.part), metadata)

    def no_table(self) -> PermanentError:
        """Why there is nothing to read, and the ways out."""
        return PermanentError(
            f"{self.title} does not exist: it was dropped, or never made. Create it, or mend "
            "`table`"
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
