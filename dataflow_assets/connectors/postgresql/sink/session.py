"""The driver's side: epoch, starting points, intents, and what is left to do after a pass."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.postgresql.client import TextLink, qualified
from dataflow_assets.connectors.postgresql.errors import Failure
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.sink.checkpoint import BranchCheckpoint
from dataflow_assets.connectors.postgresql.sink.upsert_rules import key_columns
from dataflow_assets.connectors.postgresql.table import checkpoint_tables, create_table
from dataflow_assets.connectors.postgresql.table.checkpoint_tables import Partition
from dataflow_assets.connectors.postgresql.table.table import Table, find, holds_rows
from dataflow_assets.contracts import (
    Checkpoint,
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
from dataflow_assets.sdk.checkpoint import check_begun, gaps, intent_of, unknown_starts
from dataflow_assets.sdk.server_failure import translated

# Idle sessions hold no lock and commit nothing any more: the epoch alone stops them.
_END_OLDER = """
SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE $1 AND pid <> pg_backend_pid()
  AND state <> 'idle' AND pg_has_role(usesysid, 'USAGE')
"""


class PostgresqlSinkSession(SinkSession):
    """One epoch of one branch. The checkpoint is kept in memory: an idle loop asks nothing."""

    def __init__(self, sink: PostgresqlSinkOptions, target: Target, run: Run) -> None:
        self._sink = sink
        self._target = target
        self._run = run
        self._schema, self._name = sink.place()
        self._columns: pa.Schema | None = None
        with translated(f"opening {self._sink.address()}"):
            self._link = TextLink(sink.dsn(), checkpoint_tables.application(target))
        self._branch = BranchCheckpoint(self._link, self._schema, target)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

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
    def create(self, sample: pa.Schema) -> None:
        with translated(f"creating {self._sink.address()}"), self._transaction():
            create_table.create(self._link, self._sink, sample)
            self._table = self._found()
            self._columns = None
            self._branch.hold(self.identity)
        self._reload()

    @override
    def holds_rows(self) -> bool:
        with translated(f"looking for rows in {self._sink.address()}"):
            if self._table is None:
                return False
            return holds_rows(self._link, self._schema, self._name, self._table.oid)

    @override
    def adopt(self) -> None:
        with translated(f"adopting {self._sink.address()}"), self._transaction():
            self._branch.hold(self.identity)
            self._branch.start(self._checkpoint.source, self.identity, self._checkpoint.reading)
        self._reload()

    @override
    def restart(self, positions: Positions, source: str, *, empty: bool = False) -> None:
        with translated(f"restarting {self._sink.address()}"), self._transaction():
            self._branch.hold(self.identity)
            self._branch.retire()
            reading = next_reading(self._checkpoint.reading)
            self._branch.start(source, self.identity, reading)
            self._branch.insert(positions)
            if empty and self._table is not None:
                self._empty(self._table.oid)
        self._reload()

    @override
    def begin(self, span: Span) -> Span:
        if (unfinished := self._stored.state.unfinished) is not None:
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
        parts = self._stored.state.divided(cut).intent
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
        with translated(f"forgetting {self._sink.address()}"), self._transaction():
            self._branch.hold(self.identity)
            self._branch.forget()
        self._reload()

    @override
    def close(self) -> None:
        self._link.close()

    def _open(self) -> None:
        with translated(f"opening {self._sink.address()}"):
            checkpoint_tables.prepare(self._link, self._schema)
            self._link.execute(
                _END_OLDER, checkpoint_tables.application(self._target, 0)[:-1] + "%"
            )
            with self._transaction():
                self._branch.take(self._run)
                self._reload()
            name = checkpoint_tables.application(self._target, self._branch.epoch)
            self._link.execute("SELECT set_config('application_name', $1, false)", name)
            self._table = self._found()

    def _found(self) -> Table | None:
        found = find(self._link, self._schema, self._name)
        if found is not None:
            found.check()
        return found

    def _empty(self, identity: str) -> None:
        """Looks for other flows before the table is locked, and again once none can commit."""
        place = self._sink.address()
        refuse_shared(self._target, place, self._branch.others(identity))
        self._link.execute(f"TRUNCATE {qualified(self._schema, self._name)}")
        refuse_shared(self._target, place, self._branch.others(identity))

    def _record(self, starts: Mapping[str, Position | None], intent: Sequence[PartSlice]) -> None:
        with translated(f"beginning on {self._sink.address()}"), self._transaction():
            self._branch.hold(self.identity)
            self._branch.insert(starts)
            self._branch.intend(intent)
        self._reload()

    def _finish_offsets(self, span: Span, receipts: Sequence[Receipt]) -> None:
        """Receipts carry what the writers' own commits returned: without gaps nothing is asked."""
        mine = [r for r in receipts if r.branch == self._target.branch and r.staged]
        moved = {r.partition: Partition.parse(r.staged[0]) for r in mine}
        self._move(moved)
        if missed := gaps(span, self._checkpoint.positions):
            with translated(f"finishing on {self._sink.address()}"):
                self._move(self._branch.step_over(missed))
        elif span.empty:
            self._reload()

    def _finish_parts(self, source: SourceSession) -> None:
        self._reload()
        unfinished = self._stored.state.unfinished
        if unfinished is None or not unfinished.empty:
            return
        self._fold(source.fold(self._checkpoint.positions))

    def _fold(self, positions: Positions) -> None:
        """From the parts of a bounded read to the positions that outlast them."""
        with translated(f"finishing on {self._sink.address()}"), self._transaction():
            self._branch.hold(self.identity)
            self._branch.retire()
            self._branch.insert(positions)
        self._reload()

    def _move(self, partitions: Mapping[str, Partition]) -> None:
        self._keep(replace(self._stored, partitions={**self._stored.partitions, **partitions}))

    def _reload(self) -> None:
        with translated(f"reading the checkpoint of {self._sink.address()}"):
            self._keep(self._branch.read())

    def _keep(self, stored: checkpoint_tables.Stored) -> None:
        self._stored = stored
        self._checkpoint = stored.state.checkpoint

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._link.execute("BEGIN")
        try:
            yield
            self._link.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(Failure):
                self._link.execute("ROLLBACK")
            raise
