"""The `mysql` source as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from typing import ClassVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.mysql import types
from dataflow_assets.connectors.mysql.client import MysqlClient
from dataflow_assets.connectors.mysql.options import MysqlSourceOptions
from dataflow_assets.connectors.mysql.source.dialect import MysqlDialect
from dataflow_assets.connectors.mysql.source.read import read
from dataflow_assets.connectors.mysql.source.relation import MysqlColumn, describe, identity
from dataflow_assets.contracts import SourceSession, TypeRow
from dataflow_assets.sdk.polling import PolledSqlSession
from dataflow_assets.sdk.sql_table import Binds, PolledSqlTable, Selection
from dataflow_assets.sdk.types.table import ListsTypes


class MysqlSource(MysqlSourceOptions, ListsTypes):
    """Reads a table or a query by polling: new and changed rows, in the order of their changes.

    A row is read again each time its change value has grown; deletes are not seen. Also views can
    be read, and tables of any engine.
    """

    type: ClassVar = "mysql"
    guarantee: ClassVar[str] = (
        "Each row once for each of its change values, also of equal ones: rows of the current "
        "second, where the change column has whole seconds, are read when it has passed. A row "
        "that is committed late, with a change value that was passed already, is missed: "
        "`overlapSeconds` reads such rows where the sink upserts. Deletes are not seen, nor that a "
        "table was re-created under its name: run `dataflow reset` then."
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
    def open(self, flow: str) -> SourceSession:
        return PolledSqlSession(self, flow, self._connect(), partial(identity, source=self))

    @contextmanager
    def _connect(self) -> Iterator[MysqlClient]:
        with closing(MysqlClient(self, "dataflow-assets")) as client:
            yield client

    @override
    def connect_task(self) -> AbstractContextManager[MysqlClient]:
        return closing(MysqlClient(self, "dataflow-read"))

    @override
    def describe(self, client: MysqlClient) -> PolledSqlTable[MysqlColumn]:
        relation = describe(client, self)
        return PolledSqlTable(client.rows, relation, MysqlDialect(), self.title, self.overlap)

    @override
    def fetch(
        self, client: MysqlClient, query: str, binds: Binds, columns: Sequence[Selection]
    ) -> Iterator[pa.RecordBatch]:
        return read(client, query, binds, columns)
