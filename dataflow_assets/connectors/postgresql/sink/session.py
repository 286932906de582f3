"""The driver's side of the sink: one epoch of one branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.sink.checkpoint import (
    PostgresqlCheckpoints,
    PostgresqlLinks,
)
from dataflow_assets.connectors.postgresql.sink.upsert_rules import key_columns
from dataflow_assets.connectors.postgresql.table import checkpoint_tables, create_table
from dataflow_assets.connectors.postgresql.table.access import (
    check_insertable,
    check_name,
    check_writable,
    holds_rows,
    missing_table_error,
)
from dataflow_assets.connectors.postgresql.table.table import PostgresqlTable, find
from dataflow_assets.contracts import AddsColumns, ChecksTarget, Run, Target, TargetTable
from dataflow_assets.sdk.sink.session import TransactionalSession


class PostgresqlSinkTarget(TargetTable, AddsColumns, ChecksTarget):
    """The table of one branch."""

    fills_columns: ClassVar = True

    def __init__(self, links: PostgresqlLinks) -> None:
        self._links, self._sink = links, links.sink
        self._schema, self._name = self._sink.place()
        self._columns: pa.Schema | None = None
        self._table: PostgresqlTable | None = None

    def find(self, link: TextLink) -> None:
        """Looks for the table. Called when a session opens, and once the table has changed."""
        self._table, self._columns = find(link, self._schema, self._name), None
        if self._table is None:
            check_name(link, self._sink)
            return
        self._table.check()
        check_writable(link, self._sink, self._table.oid)

    @property
    @override
    def identity(self) -> str | None:
        return self._table.oid if self._table else None

    @override
    def schema(self) -> pa.Schema | None:
        # Read once: a table altered under a run shows as an error, and the next run reads anew.
        if self._columns is None and self._table is not None:
            self._columns = self._table.schema(key_columns(self._sink, self._table))
        return self._columns

    @override
    def check_target(self) -> None:
        with self._links.lend("opening") as link:
            if self._table is not None:
                check_insertable(link, self._sink, self._table.oid)
            elif not self._sink.auto_create_table:
                raise missing_table_error(link, self._sink)

    @override
    def create(self, sample: pa.Schema) -> None:
        self.check_target()
        with self._links.transaction("creating") as link:
            create_table.create(link, self._sink, sample)
            self.find(link)

    @override
    def statement(self, columns: pa.Schema) -> str:
        with self._links.lend("looking for types in") as link:
            return create_table.adding(link, self._sink, columns)

    @override
    def add_columns(self, columns: pa.Schema) -> None:
        statement = self.statement(columns)
        with self._links.transaction(f"running {statement} on") as link:
            link.execute(statement)
            self.find(link)

    @override
    def holds_rows(self) -> bool:
        if self._table is None:
            return False
        with self._links.lend("looking for rows in") as link:
            return holds_rows(link, self._schema, self._name, self._table.oid)


class PostgresqlSinkSession(TransactionalSession):
    """The checkpoint is kept in memory: an idle loop asks nothing."""

    _sink: PostgresqlSinkOptions

    def __init__(
        self,
        sink: PostgresqlSinkOptions,
        target: Target,
        run: Run,
        table_of: Callable[[PostgresqlLinks], PostgresqlSinkTarget] = PostgresqlSinkTarget,
    ) -> None:
        """`table_of`: makes the table of the target."""
        self._links = PostgresqlLinks(sink, target)
        table = table_of(self._links)
        with self._links.lend("opening") as link:
            checkpoint_tables.prepare(link, sink.place()[0])
            checkpoint_tables.end_older(link, target)
        super().__init__(sink, target, run, table, PostgresqlCheckpoints(self._links, run, table))
        with self._links.lend("opening") as link:
            table.find(link)
