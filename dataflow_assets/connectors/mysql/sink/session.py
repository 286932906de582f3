"""The driver's side: the table itself, and the row of the branch's state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.mysql.client import MysqlClient, quote
from dataflow_assets.connectors.mysql.errors import THERE, MysqlFailure
from dataflow_assets.connectors.mysql.options import MysqlSinkOptions
from dataflow_assets.connectors.mysql.pool import lend
from dataflow_assets.connectors.mysql.rejected.error_sink import MysqlRejected
from dataflow_assets.connectors.mysql.sink.checkpoint import MysqlCheckpoint
from dataflow_assets.connectors.mysql.table import create_table
from dataflow_assets.connectors.mysql.table.table import find
from dataflow_assets.contracts import (
    AddsColumns,
    ChecksTarget,
    Receipt,
    Run,
    Target,
    TargetTable,
    refuse_shared,
)
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sink.checkpoint_store import CheckpointStore, StateChange
from dataflow_assets.sdk.sink.session import TransactionalSession
from dataflow_assets.sdk.sink.state import BranchState

_LOOKS = 2  # at the columns of a table to which another flow may add the same


class MysqlLinks:
    """Links of one session, each lent for one operation."""

    def __init__(self, sink: MysqlSinkOptions, target: Target) -> None:
        self.sink, self.target = sink, target
        self.place = quote(*sink.place())

    @contextmanager
    def lend(self, what: str) -> Iterator[MysqlClient]:
        with translate_errors(f"{what} {self.sink.address()}"), lend(self.sink) as link:
            yield link

    @contextmanager
    def change(self, what: str) -> Iterator[MysqlCheckpoint]:
        """The branch's row, in a transaction."""
        with self.lend(what) as link, link.transaction():
            yield self.row(link)

    def row(self, link: MysqlClient) -> MysqlCheckpoint:
        """The branch's row in the table of checkpoints."""
        return MysqlCheckpoint(link, self.sink.place()[0], self.target)

    def alter(self, statement: str) -> bool:
        """False: a column is there by now, as another flow has added it."""
        with self.lend(f"running {statement} on") as link:
            try:
                link.run(statement)
            except MysqlFailure as failure:
                if failure.code != THERE:
                    raise
                return False
        return True


class MysqlSinkTarget(TargetTable, AddsColumns, ChecksTarget):
    """The table of one branch."""

    def __init__(self, links: MysqlLinks) -> None:
        self._links, self._sink = links, links.sink
        self._look_again()

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
        if self._table is None and not self._sink.auto_create_table:
            raise self._sink.no_table()

    @override
    def create(self, sample: pa.Schema) -> None:
        self.check_target()
        with self._links.lend("creating") as link:
            create_table.create(link, self._sink, sample)
        self._look_again()

    @override
    def statement(self, columns: pa.Schema) -> str:
        known = frozenset(self._schema.names if self._schema else ())
        return create_table.adding(self._sink, columns, known)

    @override
    def add_columns(self, columns: pa.Schema) -> None:
        self._look_again()
        for _ in range(_LOOKS):
            before, statement = self.identity, self.statement(columns)
            altered = bool(statement) and self._links.alter(statement)
            self._look_again()
            if altered:  # a rebuilt table has another id
                with self._links.change("moving the checkpoints of") as row:
                    row.adopt_all(before, self.identity)
                return

    @override
    def holds_rows(self) -> bool:
        if self._table is None:
            return False
        with self._links.lend("looking for rows in") as link:
            return bool(link.rows(f"SELECT 1 FROM {self._links.place} LIMIT 1"))  # noqa: S608 - quoted

    def _look_again(self) -> None:
        with self._links.lend("looking at") as link:
            self._table = find(link, self._sink)
        table = self._table
        self._schema = table.schema(table.key(self._sink)) if table else None


class MysqlCheckpoints(CheckpointStore):
    """The state is a row of `dataflow_checkpoint`, locked in every transaction that changes it."""

    system: ClassVar = "mysql"

    def __init__(self, links: MysqlLinks, table: TargetTable) -> None:
        self._links, self._table = links, table

    @override
    def load(self, receipts: Sequence[Receipt] = ()) -> BranchState | None:
        with self._links.lend("reading the checkpoint of") as link:
            return self._links.row(link).load()

    @override
    def change(self, step: StateChange) -> BranchState:
        with self._links.change("moving the checkpoint of") as row:
            return row.move(step)

    @override
    def fence(self, step: StateChange, *, empty: bool = False) -> BranchState:
        with self._links.change("taking over") as row:
            state = row.move(step)
            if empty and self._table.identity is not None:
                row.link.run(f"DELETE FROM {self._links.place}")  # noqa: S608 - quoted
                # Whose rows were there has its checkpoint by now.
                others = row.others(self._table.identity)
                refuse_shared(self._links.target, self._links.sink.address(), others)
        with self._links.lend("ending older transactions of") as link:
            self._links.row(link).end_older(state)
        return state

    @override
    def sharing(self) -> Mapping[str, str]:
        with self._links.lend("reading the checkpoints beside") as link:
            return self._links.row(link).others(self._table.identity)


class MysqlSinkSession(TransactionalSession):
    """One epoch of one branch."""

    _sink: MysqlSinkOptions

    def __init__(self, sink: MysqlSinkOptions, target: Target, run: Run) -> None:
        links = MysqlLinks(sink, target)
        with links.lend("opening") as link:
            links.row(link).prepare()
            MysqlRejected.beside(link, sink).prepare()
        table = MysqlSinkTarget(links)
        super().__init__(sink, target, run, table, MysqlCheckpoints(links, table))
