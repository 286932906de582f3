"""The driver's side: epoch, starting points, intents, and what is left to do after a pass."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.postgresql.client import TextLink, qualified_name
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.pool import lend, transaction
from dataflow_assets.connectors.postgresql.sink.checkpoint import BranchCheckpoint
from dataflow_assets.connectors.postgresql.sink.upsert_rules import key_columns
from dataflow_assets.connectors.postgresql.table import checkpoint_tables, create_table
from dataflow_assets.connectors.postgresql.table.access import (
    absent,
    check_insertable,
    check_name,
    check_writable,
    holds_rows,
)
from dataflow_assets.connectors.postgresql.table.checkpoint_tables import PostgresqlPartition
from dataflow_assets.connectors.postgresql.table.table import PostgresqlTable, find
from dataflow_assets.contracts import (
    AddsColumns,
    Checkpoint,
    ChecksTarget,
    Cut,
    PartSlice,
    Position,
    Positions,
    Receipt,
    Run,
    SinkSession,
    SourceSession,
    Span,
    Target,
    Ticket,
    lasting,
    next_reading,
    refuse_shared,
)
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sink.decide import check_begun, gaps, intent_of, unknown_starts


class PostgresqlSinkSession(SinkSession, AddsColumns, ChecksTarget):
    """One epoch of one branch. The checkpoint is kept in memory: an idle loop asks nothing.

    A link is borrowed for each operation: an idle session has none.
    """

    fills_columns: ClassVar = True

    def __init__(self, sink: PostgresqlSinkOptions, target: Target, run: Run) -> None:
        self._sink = sink
        self._target = target
        self._run = run
        self._schema, self._name = sink.place()
        self._columns: pa.Schema | None = None
        self._epoch = 0
        self._table: PostgresqlTable | None = None
        self._open()

    @property
    @override
    def checkpoint(self) -> Checkpoint:
        return self._checkpoint

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
        with translate_errors(f"opening {self._sink.address()}"), lend(self._sink.dsn()) as link:
            if self._table is not None:
                check_insertable(link, self._sink, self._table.oid)
            elif not self._sink.auto_create_table:
                raise absent(link, self._sink)

    @override
    def create(self, sample: pa.Schema) -> None:
        self.check_target()
        with self._transaction("creating") as link:
            create_table.create(link, self._sink, sample)
            made = self._find_table(link)
            stored = self._hold(link, made).read()
        self._table, self._columns = made, None
        self._keep(stored)

    @override
    def statement(self, columns: pa.Schema) -> str:
        what = f"looking for types in {self._sink.address()}"
        with translate_errors(what), lend(self._sink.dsn()) as link:
            return create_table.adding(link, self._sink, columns)

    @override
    def add_columns(self, columns: pa.Schema) -> None:
        statement = self.statement(columns)
        with self._transaction(f"running {statement} on") as link:
            link.execute(statement)
            self._table, self._columns = self._find_table(link), None

    @override
    def holds_rows(self) -> bool:
        with translate_errors(f"looking for rows in {self._sink.address()}"):
            if self._table is None:
                return False
            with lend(self._sink.dsn()) as link:
                return holds_rows(link, self._schema, self._name, self._table.oid)

    @override
    def adopt(self) -> None:
        with self._change("adopting") as branch:
            branch.start(self._checkpoint.source, self.identity, self._checkpoint.reading)

    @override
    def restart(self, positions: Positions, source: str, *, empty: bool = False) -> None:
        with self._change("restarting") as branch:
            branch.retire()
            reading = next_reading(self._checkpoint.reading)
            branch.start(source, self.identity, reading)
            branch.insert(positions)
            if empty and self._table is not None:
                self._empty(branch, self._table.oid)

    @override
    def begin(self, span: Span) -> Span:
        if (unfinished := self._stored.state.unfinished_span) is not None:
            return unfinished
        check_begun(self._target.flow, span, self._checkpoint.positions)
        intent = intent_of(span)
        starts = unknown_starts(span, self._stored.partitions)
        unstamped = (
            not self._checkpoint.target or self._checkpoint.manifest != self._target.manifest
        )
        if intent or starts or unstamped:
            self._record(starts, intent)
        failpoints.reach("postgresql.begin")
        return span  # where nothing was new, the tasks assert the epoch

    @override
    def divide(self, span: Span, cut: Cut) -> Span:
        # Every partition has our epoch: a part is committed by now, or never.
        parts = self._stored.state.divide(cut).intent
        if not parts or parts == span.slices:
            return span
        divided = replace(span, slices=parts)
        self._record(unknown_starts(divided, self._stored.partitions), parts)
        return divided

    @override
    def abandon(self) -> None:
        # Every partition has our epoch, as in `divide`.
        self._fold(lasting(self._checkpoint.positions))

    @override
    def ticket(self) -> Ticket:
        schema = self.schema()
        if schema is None:
            raise self._sink.no_table()
        failpoint = failpoints.from_environment()
        target = replace(self._target, reading=self._checkpoint.reading)
        return Ticket(target, self._run, self._checkpoint.epoch, schema, failpoint)

    @override
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        failpoints.reach("postgresql.finish")
        if any(isinstance(piece, PartSlice) for piece in span.slices):
            self._finish_parts(source)
        else:
            self._finish_offsets(span, receipts)
        return self._checkpoint

    @override
    def forget(self) -> None:
        with self._change("forgetting") as branch:
            branch.forget()

    @override
    def close(self) -> None: ...

    def _open(self) -> None:
        opening = checkpoint_tables.application(self._target)
        with translate_errors(f"opening {self._sink.address()}"):
            with lend(self._sink.dsn()) as link:
                checkpoint_tables.prepare(link, self._schema)
                checkpoint_tables.end_older(link, self._target)
            with transaction(self._sink.dsn(), opening) as link:
                branch = BranchCheckpoint(link, self._schema, self._target)
                branch.take(self._run)
                stored = branch.read()
            with lend(self._sink.dsn()) as link:
                self._table = self._find_table(link)
        self._epoch = branch.epoch
        self._keep(stored)

    def _find_table(self, link: TextLink) -> PostgresqlTable | None:
        found = find(link, self._schema, self._name)
        if found is None:
            check_name(link, self._sink)
            return None
        found.check()
        check_writable(link, self._sink, found.oid)
        return found

    def _empty(self, branch: BranchCheckpoint, identity: str) -> None:
        """Looks for other flows before the table is locked, and again once none can commit."""
        place = self._sink.address()
        refuse_shared(self._target, place, branch.others(identity))
        branch.empty(qualified_name(self._schema, self._name))
        refuse_shared(self._target, place, branch.others(identity))

    def _record(self, starts: Mapping[str, Position | None], intent: Sequence[PartSlice]) -> None:
        with self._change("beginning on") as branch:
            branch.insert(starts)
            branch.intend(intent)

    def _finish_offsets(self, span: Span, receipts: Sequence[Receipt]) -> None:
        """Receipts carry what the writers' own commits returned: without gaps nothing is asked."""
        mine = [r for r in receipts if r.branch == self._target.branch and r.staged]
        moved = {r.partition: PostgresqlPartition.parse(r.staged[0]) for r in mine}
        self._move(moved)
        if missed := gaps(span, self._checkpoint.positions):
            with self._transaction("finishing on") as link:
                stepped = self._branch(link).step_over(missed)
            self._move(stepped)
        elif span.empty:
            self._reload()

    def _finish_parts(self, source: SourceSession) -> None:
        self._reload()
        unfinished = self._stored.state.unfinished_span
        if unfinished is None or not unfinished.empty:
            return
        self._fold(source.fold(self._checkpoint.positions))

    def _fold(self, positions: Positions) -> None:
        """From the parts of a bounded read to the positions that outlast them."""
        with self._change("finishing on") as branch:
            branch.retire()
            branch.insert(positions)

    def _move(self, partitions: Mapping[str, PostgresqlPartition]) -> None:
        self._keep(replace(self._stored, partitions={**self._stored.partitions, **partitions}))

    def _reload(self) -> None:
        reading = f"reading the checkpoint of {self._sink.address()}"
        with translate_errors(reading), lend(self._sink.dsn()) as link:
            stored = self._branch(link).read()
        self._keep(stored)

    def _keep(self, stored: checkpoint_tables.PostgresqlStored) -> None:
        self._stored = stored
        self._checkpoint = stored.state.for_readers

    @contextlib.contextmanager
    def _change(self, what: str) -> Iterator[BranchCheckpoint]:
        """One change of the checkpoint under our epoch; what it makes of it is kept in memory."""
        with self._transaction(what) as link:
            branch = self._hold(link, self._table)
            yield branch
            stored = branch.read()
        self._keep(stored)

    @contextlib.contextmanager
    def _transaction(self, what: str) -> Iterator[TextLink]:
        name = checkpoint_tables.application(self._target, self._epoch)
        with (
            translate_errors(f"{what} {self._sink.address()}"),
            transaction(self._sink.dsn(), name) as link,
        ):
            yield link

    def _hold(self, link: TextLink, table: PostgresqlTable | None) -> BranchCheckpoint:
        """The branch's row, locked under our epoch."""
        branch = self._branch(link)
        branch.hold(table.oid if table else None)
        return branch

    def _branch(self, link: TextLink) -> BranchCheckpoint:
        return BranchCheckpoint(link, self._schema, self._target, self._epoch)
