"""The `clickhouse` source as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from typing import ClassVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.client import Client, connect, query_rows, stream
from dataflow_assets.connectors.clickhouse.options import ClickhouseSourceOptions
from dataflow_assets.connectors.clickhouse.shared_client import ClickhouseLease
from dataflow_assets.connectors.clickhouse.source.dialect import ClickhouseDialect
from dataflow_assets.connectors.clickhouse.source.relation import (
    ClickhouseColumn,
    describe,
    identity,
)
from dataflow_assets.contracts import TypeRow
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.polling import PolledSqlSession
from dataflow_assets.sdk.sql_table import Binds, PolledSqlTable, Selection
from dataflow_assets.sdk.types.table import ListsTypes


class ClickhouseSource(ClickhouseSourceOptions, ListsTypes):
    """Reads a table or a query by polling: new and changed rows, in the order of their changes.

    A row is read again each time its change value has grown. Rows whose change value is the current
    second of a DateTime, or the current day of a Date, are read after that second or day.
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

    @override
    @classmethod
    def types(cls) -> tuple[TypeRow, ...]:
        return types.rows()

    @override
    def open(self, flow: str) -> PolledSqlSession:
        return PolledSqlSession(self, flow, self._lease(), partial(identity, source=self))

    @contextmanager
    def _lease(self) -> Iterator[Client]:
        with closing(ClickhouseLease(self.dsn())) as lease:
            yield lease.client

    @override
    def connect_task(self) -> AbstractContextManager[Client]:
        return closing(connect(self.dsn(), "dataflow-read"))

    @override
    def describe(self, client: Client) -> PolledSqlTable[ClickhouseColumn]:
        relation, ask = describe(client, self), partial(query_rows, client)
        return PolledSqlTable(ask, relation, ClickhouseDialect(), self.title)

    @override
    def fetch(
        self, client: Client, query: str, binds: Binds, columns: Sequence[Selection]
    ) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([column.field for column in columns])
        with stream(client, query, binds, types.settings_of(query)) as batches:
            for batch in batches:
                yield types.text_checked(batch, schema, self._no_text)

    def _no_text(self, column: str) -> PermanentError:
        return PermanentError(
            f"{self.title}: column {column} holds bytes that are not UTF-8 text; give a `query` "
            f"that selects them as hex({column}) or base64Encode({column})"
        )
