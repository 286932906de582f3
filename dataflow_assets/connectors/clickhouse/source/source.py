"""The `clickhouse` source as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Self

import pyarrow as pa
from pydantic import model_validator
from typing_extensions import override

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.errors import Failure
from dataflow_assets.connectors.clickhouse.settings import ClickhouseConnection
from dataflow_assets.contracts import SourceSession, TypeRow
from dataflow_assets.errors import DataflowError
from dataflow_assets.sdk.database import ColumnName
from dataflow_assets.sdk.polling import Part, PolledSource
from dataflow_assets.spec import Addition


class ClickhouseSource(ClickhouseConnection, PolledSource):
    """Reads a table or a query by polling: new and changed rows, in the order of their changes.

    A row is read again each time its change value has grown. Rows of the current tick of
    the change column (the second of a DateTime, the day of a Date) are read when that tick is over.
    """

    type: ClassVar = "clickhouse"
    guarantee: ClassVar[str] = (
        "Each row exactly once per change value, as far as its change column shows: bounds are "
        "fixed before anything is read, by the server's clock, and a part is stored whole or not "
        "at all. Values are compared to the last digit, so rows of one change value are neither "
        "skipped nor repeated. Deletes are not seen, nor rows that are inserted with a change "
        "value that was already passed."
    )
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"id"})
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "table": "the table as the manifest names it",
        "id": "the row's value of `orderByColumn`",
    }

    order_by_column: ColumnName = "id"
    """Orders rows with equal change values, so it must be unique; best a prefix of the table's
    sorting key. Available as the metadata `id`."""
    change_tracking_column: ColumnName = "created_at"
    """The column whose value grows with each change. A table without it is read by
    `orderByColumn` alone: new rows, no changes."""
    final: Annotated[bool, Addition()] = False
    """Read with FINAL: of a ReplacingMergeTree the last row of each key, not all there are."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.query is not None and self.final:
            raise ValueError("final is for tables; write FINAL into the query")
        return self

    @override
    @classmethod
    def types(cls) -> tuple[TypeRow, ...]:
        return types.rows()

    @override
    def open(self, flow: str) -> SourceSession:
        from dataflow_assets.connectors.clickhouse.source.session import ClickhouseSourceSession

        return ClickhouseSourceSession(self, flow)

    @override
    def read(
        self, part: Part, metadata: frozenset[str], most: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        from dataflow_assets.connectors.clickhouse.source.read import read

        return read(self, part, metadata, most)

    def meaning(self, failure: Failure, what: str) -> DataflowError:
        """A failure while reading, for a person."""
        return failure.error(f"{what} {self.title}")
