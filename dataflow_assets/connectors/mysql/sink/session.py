"""The driver's side: epoch, starting points, intents, and the table itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.mysql.client import MysqlClient, quote
from dataflow_assets.connectors.mysql.options import MysqlSinkOptions
from dataflow_assets.connectors.mysql.pool import lend
from dataflow_assets.connectors.mysql.rejected.error_sink import MysqlRejected
from dataflow_assets.connectors.mysql.sink.checkpoint import MysqlCheckpoint
from dataflow_assets.connectors.mysql.table import create_table
from dataflow_assets.connectors.mysql.table.table import MysqlTable, find
from dataflow_assets.contracts import (
    AddsColumns,
    Checkpoint,
    ChecksTarget,
    Receipt,
    Run,
    SourceSession,
    Span,
    Target,
    refuse_shared,
)
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sink.session import StateChange, TransactionalSession
from dataflow_assets.sdk.sink.state import BranchState


class MysqlSinkSession(TransactionalSession, AddsColumns, ChecksTarget):
    """The state is a row of `dataflow_checkpoint`, locked in every transaction that changes it."""

    def __init__(self, sink: MysqlSinkOptions, target: Target, run: Run) -> None:
        self._options, self._branch = sink, target
        with self._connect("opening") as link:
            self._checkpoint(link).prepare()
            MysqlRejected.beside(link, sink).prepare()
            self._table = find(link, sink)
            self._schema = self._describe(self._table)
        super().__init__(sink, target, run)

    @property
    @override
    def identity(self) -> str | None:
        return self._table.identity if self._table else None

    @property
    @override
    def difference(self) -> str | None:
        return (
            "is another table now, or was rebuilt by ALTER TABLE, OPTIMIZE TABLE or TRUNCATE "
            "(InnoDB gives it another id than at the last commit)"
        )

    @override
    def schema(self) -> pa.Schema | None:
        return self._schema

    @override
    def check_target(self) -> None:
        if self._table is None and not self._options.auto_create_table:
            raise self._options.no_table()

    @override
    def create(self, sample: pa.Schema) -> None:
        self.check_target()
        with self._connect("creating") as link:
            create_table.create(link, self._options, sample)
        self._look_again()

    @override
    def statement(self, columns: pa.Schema) -> str:
        known = frozenset(self._schema.names if self._schema else ())
        return create_table.adding(self._options, columns, known)

    @override
    def add_columns(self, columns: pa.Schema) -> None:
        self._look_again()
        if statement := self.statement(columns):
            with self._connect(f"running {statement} on") as link:
                link.run(statement)
            self._look_again()
            self.adopt()  # a table that is rebuilt for it has another id

    @override
    def holds_rows(self) -> bool:
        if self._table is None:
            return False
        with self._connect("looking for rows in") as link:
            return bool(link.rows(f"SELECT 1 FROM {self._place} LIMIT 1"))  # noqa: S608 - quoted

    @override
    def read(self) -> BranchState | None:
        with self._connect("reading the checkpoint of") as link:
            return self._checkpoint(link).load()

    @override
    def record(self, step: StateChange) -> BranchState:
        with self._connect("moving the checkpoint of") as link, link.transaction():
            return self._checkpoint(link).move(step)

    @override
    def fence(self, step: StateChange, *, empty: bool = False) -> BranchState:
        with self._connect("taking over") as link, link.transaction():
            checkpoint = self._checkpoint(link)
            state = checkpoint.move(step)
            if empty and self._table is not None:
                self._check_alone(checkpoint)
                link.run(f"DELETE FROM {self._place}")  # noqa: S608 - quoted
                self._check_alone(checkpoint)  # whose rows were there has its checkpoint by now
        return state

    @override
    def publish(self, step: StateChange, receipts: Sequence[Receipt]) -> BranchState:
        del receipts  # their rows are stored
        return self.record(step)

    @override
    def begin(self, span: Span) -> Span:
        recorded = super().begin(span)
        failpoints.reach("mysql.begin")
        return recorded

    @override
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        failpoints.reach("mysql.finish")
        return super().finish(span, receipts, source)

    def _check_alone(self, checkpoint: MysqlCheckpoint) -> None:
        others = checkpoint.others(self.identity)
        refuse_shared(self._branch, self._options.address(), others)

    def _look_again(self) -> None:
        with self._connect("looking at") as link:
            self._table = find(link, self._options)
            self._schema = self._describe(self._table)

    def _describe(self, table: MysqlTable | None) -> pa.Schema | None:
        return table.schema(table.key(self._options)) if table else None

    def _checkpoint(self, link: MysqlClient) -> MysqlCheckpoint:
        return MysqlCheckpoint(link, self._options.place()[0], self._branch)

    @property
    def _place(self) -> str:
        return quote(*self._options.place())

    @contextmanager
    def _connect(self, what: str) -> Iterator[MysqlClient]:
        with (
            translate_errors(f"{what} {self._options.address()}"),
            lend(self._options) as link,
        ):
            yield link
