"""The table that rows go to, as a session of the sink finds, makes and changes it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.pool import lend, transaction
from dataflow_assets.connectors.postgresql.sink.upsert_rules import key_columns
from dataflow_assets.connectors.postgresql.table import checkpoint_tables, create_table
from dataflow_assets.connectors.postgresql.table.access import (
    absent,
    check_insertable,
    check_name,
    check_writable,
    holds_rows,
)
from dataflow_assets.connectors.postgresql.table.table import PostgresqlTable, find
from dataflow_assets.contracts import AddsColumns, ChecksTarget, Target, TargetTable
from dataflow_assets.sdk.server_failure import translate_errors


class PostgresqlLinks:
    """Links of one session: one is borrowed for each operation, and an idle session has none."""

    def __init__(self, sink: PostgresqlSinkOptions, target: Target) -> None:
        self.sink, self.target = sink, target
        self.epoch: int | None = None

    @contextlib.contextmanager
    def lend(self, what: str) -> Iterator[TextLink]:
        """For questions, and for statements that are whole by themselves."""
        with translate_errors(f"{what} {self.sink.address()}"), lend(self.sink.dsn()) as link:
            yield link

    @contextlib.contextmanager
    def transaction(self, what: str) -> Iterator[TextLink]:
        """Under the name of the epoch, by which a newer session ends it."""
        name = checkpoint_tables.application(self.target, self.epoch)
        with (
            translate_errors(f"{what} {self.sink.address()}"),
            transaction(self.sink.dsn(), name) as link,
        ):
            yield link


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
                raise absent(link, self._sink)

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
