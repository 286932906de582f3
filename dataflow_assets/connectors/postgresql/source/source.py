"""The `postgresql` source as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.postgresql.options import PostgresqlSourceOptions
from dataflow_assets.connectors.postgresql.source.read import read
from dataflow_assets.connectors.postgresql.source.session import PostgresqlSourceSession
from dataflow_assets.connectors.postgresql.source.types import listed
from dataflow_assets.contracts import TypeRow
from dataflow_assets.contracts.declared import ListsTypes
from dataflow_assets.sdk.polling import Part


class PostgresqlSource(PostgresqlSourceOptions, ListsTypes):
    """Reads a table or a query by polling: new and changed rows, in the order of their changes.

    A row is read again each time its change value has grown; deletes are not seen.
    """

    type: ClassVar = "postgresql"
    guarantee: ClassVar = (
        "Each row once for each of its change values; rows with equal ones are neither skipped nor "
        "repeated: rows of the current second, where the change column has whole seconds, are read "
        "when that second has passed. Only a row that is committed late, with a change value that "
        "was passed already, is missed: `overlapSeconds` reads such rows where the sink upserts. "
        "Deletes are not seen."
    )
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"id", "operation"})
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "table": "the table as the manifest names it; a query without `table` has no such key",
        "id": "the row's value of `orderByColumn`",
        "operation": "`update` where `updated_at` is later than `created_at`, else `insert`",
    }

    @override
    def open(self, flow: str) -> PostgresqlSourceSession:
        return PostgresqlSourceSession(self, flow)

    @override
    def read(
        self, part: Part, metadata: frozenset[str], most: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        return read(self, part, metadata, most)

    @override
    @classmethod
    def types(cls) -> tuple[TypeRow, ...]:
        return listed()
