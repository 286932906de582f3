"""The `trino` source as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any, ClassVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.trino import types
from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.decode import batches
from dataflow_assets.connectors.trino.options import TrinoSourceOptions
from dataflow_assets.connectors.trino.source.dialect import TrinoDialect
from dataflow_assets.connectors.trino.source.relation import TrinoColumn, describe, place_of
from dataflow_assets.connectors.trino.table.table import Column, find
from dataflow_assets.contracts import Slice, SourceSession, TypeRow
from dataflow_assets.sdk.polling import PolledSqlSession
from dataflow_assets.sdk.sql_table import Binds, PolledSqlTable, Selection
from dataflow_assets.sdk.types.table import ListsTypes


class TrinoSource(TrinoSourceOptions, ListsTypes):
    """Reads a table or a query by polling: new and changed rows, in the order of their changes.

    A row is read again each time its change value has grown. Rows whose change value is the current
    second of a timestamp(0), or the current day of a date, are read after that second or day.
    """

    type: ClassVar = "trino"
    guarantee: ClassVar[str] = (
        "Each row exactly once for each of its change values: bounds are fixed before anything is "
        "read, by the coordinator's clock, and a part is stored whole or not at all. Values are "
        "compared to the last digit. Each part is a query of its own, which sees one state of the "
        "table if the catalog has snapshots. Deletes are not seen, nor are rows that are committed "
        "with a change value that was already passed."
    )
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"id"})
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "catalog": "the catalog as the manifest names it",
        "schema": "the schema as the manifest names it",
        "table": "the table as the manifest names it",
        "id": "the row's value of `orderByColumn`",
    }

    @override
    @classmethod
    def types(cls) -> tuple[TypeRow, ...]:
        return types.rows()

    @override
    def metadata(self, piece: Slice) -> dict[str, Any]:
        where = {"catalog": self.catalog, "schema": self.namespace}
        return {**where, **super().metadata(piece)}

    @override
    def open(self, flow: str) -> SourceSession:
        connection = closing(TrinoClient(self, "dataflow-assets"))
        return PolledSqlSession(self, flow, connection, self._identify)

    @override
    def connect_task(self) -> AbstractContextManager[TrinoClient]:
        return closing(TrinoClient(self, "dataflow-read"))

    def _identify(self, client: TrinoClient) -> str | None:
        table = find(client, place_of(self))
        return table.identity if table else None

    @override
    def describe(self, client: TrinoClient) -> PolledSqlTable[TrinoColumn]:
        def ask(query: str, _: Binds) -> Sequence[Sequence[Any]]:
            return client.rows(query)

        return PolledSqlTable(ask, describe(client, self), TrinoDialect(), self.title)

    @override
    def fetch(
        self, client: TrinoClient, query: str, binds: Binds, columns: Sequence[Selection]
    ) -> Iterator[pa.RecordBatch]:
        kinds = [(Column(each.column.name, each.column.type), each.field) for each in columns]
        return batches(client.pages(query), kinds)
