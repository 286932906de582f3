"""The `postgresql` source as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import ClassVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.options import PostgresqlSourceOptions
from dataflow_assets.connectors.postgresql.source.polled import (
    PolledPostgresqlTable,
    polled_table,
)
from dataflow_assets.connectors.postgresql.source.read import read
from dataflow_assets.connectors.postgresql.source.relation import TIMES, Relation, SourceColumn
from dataflow_assets.connectors.postgresql.source.session import PostgresqlSourceSession
from dataflow_assets.connectors.postgresql.source.types import TypeOf, type_rows
from dataflow_assets.contracts import TypeRow
from dataflow_assets.sdk.sql_table import Binds, Selection
from dataflow_assets.sdk.sql_table.relation import metadata_selection
from dataflow_assets.sdk.types.table import ListsTypes


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
    def connect_task(self) -> AbstractContextManager[TextLink]:
        return closing(TextLink(self.dsn(), "dataflow-read"))

    @override
    def describe(self, client: TextLink) -> PolledPostgresqlTable:
        return polled_table(client, self)

    @override
    def fetch(
        self, client: TextLink, query: str, binds: Binds, columns: Sequence[Selection]
    ) -> Iterator[pa.RecordBatch]:
        return read(client, query, columns)

    @override
    def metadata_selections(self, relation: Relation, names: frozenset[str]) -> list[Selection]:
        selections = super().metadata_selections(relation, names)
        if "operation" in names:
            text = SourceColumn("operation", TypeOf("text", "text"), required=True)
            selections.append(metadata_selection("operation", _operation(relation), text))
        return selections

    @override
    @classmethod
    def types(cls) -> tuple[TypeRow, ...]:
        return type_rows()


def _operation(relation: Relation) -> str:
    """`update` where both times are there, and tell it."""
    times = {each.name: each.sql for each in relation.columns if each.type.base in TIMES}
    created, updated = times.get("created_at"), times.get("updated_at")
    if created is None or updated is None:
        return "'insert'::text"
    return f"CASE WHEN {updated} > {created} THEN 'update' ELSE 'insert' END"
