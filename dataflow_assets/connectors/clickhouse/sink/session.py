"""The driver's side: epoch, starting points, intents, and what is left to do after a pass."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.clickhouse.client import Client, query_rows
from dataflow_assets.connectors.clickhouse.options import ClickhouseSinkOptions
from dataflow_assets.connectors.clickhouse.shared_client import ClickhouseLease
from dataflow_assets.connectors.clickhouse.sink import empty_table, recovery, trial_table
from dataflow_assets.connectors.clickhouse.sink.checkpoint import BranchCheckpoint
from dataflow_assets.connectors.clickhouse.sink.finish import state_after
from dataflow_assets.connectors.clickhouse.sink.insert import Facts
from dataflow_assets.connectors.clickhouse.sink.upsert_rules import UpsertRules
from dataflow_assets.connectors.clickhouse.table import checkpoint_table, create_table
from dataflow_assets.connectors.clickhouse.table.checkpoint_log import (
    ClickhouseHead,
    ClickhouseState,
)
from dataflow_assets.connectors.clickhouse.table.checkpoint_table import ClickhouseCheckpointTable
from dataflow_assets.connectors.clickhouse.table.table import (
    ROW,
    ClickhouseTable,
    find,
    forgetful_views,
)
from dataflow_assets.contracts import (
    AddsColumns,
    Checkpoint,
    ChecksTarget,
    CountsRows,
    Cut,
    PartSlice,
    Positions,
    Receipt,
    Run,
    SinkSession,
    SourceSession,
    Span,
    Target,
    TargetTable,
    Ticket,
    Totals,
    lasting,
    local_now,
    next_reading,
    refuse_shared,
)
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sink.decide import check_planned_from

log = logging.getLogger(__name__)


class ClickhouseSinkTarget(TargetTable, AddsColumns, ChecksTarget, CountsRows):
    """The table of one branch, and how rows are upserted into it."""

    def __init__(self, client: Client, sink: ClickhouseSinkOptions) -> None:
        self._client, self._sink = client, sink
        self.found: ClickhouseTable | None = None
        self.upsert = UpsertRules()

    def find(self) -> ClickhouseTable | None:
        """Looks for the table. Called when a session opens, and once the table has changed."""
        self.found, self.upsert = find(self._client, *self._sink.place()), UpsertRules()
        if self.found is not None:
            self.found.check()
            self.upsert = UpsertRules.of(self._sink, self.found)
        return self.found

    @property
    @override
    def identity(self) -> str | None:
        return self.found.uuid if self.found else None

    @override
    def schema(self) -> pa.Schema | None:
        # Read once: a table altered under a run shows as an error, and the next run reads anew.
        if self.found is None:
            return None
        return self.found.schema(self.upsert.key, self.upsert.own_columns)

    @override
    def row_count(self) -> int | None:
        if self.found is None or self.found.replaces:
            return None
        query = f"SELECT total_rows FROM system.tables WHERE {ROW}"  # noqa: S608 - our own text
        with translate_errors(f"counting the rows of {self._sink.address()}"):
            found = query_rows(self._client, query, self.found.row)
        return found[0][0] if found else None

    @override
    def check_target(self) -> None:
        if self.found is None and not self._sink.auto_create_table:
            raise self._sink.no_table()

    @override
    def create(self, sample: pa.Schema) -> None:
        self.check_target()
        with translate_errors(f"creating {self._sink.address()}"):
            create_table.create(self._client, self._sink, sample)
            self.find()

    @override
    def statement(self, columns: pa.Schema) -> str:
        return create_table.adding(self._sink, columns)

    @override
    def add_columns(self, columns: pa.Schema) -> None:
        with translate_errors(f"adding columns to {self._sink.address()}"):
            create_table.add_columns(self._client, self._sink, columns)
            self.find()

    @override
    def holds_rows(self) -> bool:
        with translate_errors(f"counting the rows of {self._sink.address()}"):
            return self.found is not None and empty_table.holds_rows(self._client, self.found)


class ClickhouseSinkSession(SinkSession):
    """One epoch of one branch. The state is kept in memory: an idle loop asks nothing."""

    _state: ClickhouseState

    def __init__(self, sink: ClickhouseSinkOptions, target: Target, run: Run) -> None:
        self._sink, self._target, self._run = sink, target, run
        self._database, self._name = sink.place()
        self._at = local_now()
        with translate_errors(f"opening {self._sink.address()}"):
            self._lease = ClickhouseLease(sink.dsn())
        self._client = self._lease.client
        self._table = ClickhouseSinkTarget(self._client, sink)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @property
    @override
    def checkpoint(self) -> Checkpoint:
        return self._state.branch.for_readers

    @property
    @override
    def table(self) -> ClickhouseSinkTarget:
        return self._table

    @override
    def adopt(self) -> None:
        """Takes the table as the target; of chunks in doubt only the one before it could tell."""
        state = self._state
        recovery.check_adopted(state, self._target)
        intent = state.head.intent and replace(state.head.intent, blocks=self._log.blocks)
        with translate_errors(f"adopting {self._sink.address()}"):
            self._head(replace(state.snapshot(), target=self._table.identity, intent=intent))

    @override
    def restart(self, positions: Positions, source: str, *, empty: bool = False) -> None:
        with translate_errors(f"restarting {self._sink.address()}"):
            if empty and self._table.found is not None:
                self._check_emptied(self._table.found)
            head = replace(
                self._state.restart(positions),
                generation=self._branch.generation(),
                source=source,
                target=self._table.identity,
                manifest=self._target.manifest,
                emptying=empty and self._table.found is not None,
                reading=next_reading(self._state.head.reading),
            )
            self._head(head)
            failpoints.reach("clickhouse.restarting")
            self._empty()

    @override
    def begin(self, span: Span) -> Span:
        self._at = span.at or local_now()
        unfinished = recovery.unfinished_span(self._state, span)
        if unfinished is not None:
            place = self._table.found, f"{self._database}.{self._name}"
            recovery.check_window(self._state, self._log.blocks, place, self._target)
            self._at = unfinished.at or self._at
            return unfinished
        check_planned_from(self._target.flow, span, self.checkpoint.positions)
        with translate_errors(f"beginning on {self._sink.address()}"):
            self._record(span)
        failpoints.reach("clickhouse.begin")
        return replace(span, at=self._at)  # where nothing was new, the tasks assert the epoch

    @override
    def divide(self, span: Span, cut: Cut) -> Span:
        parts = recovery.cut_parts(self._state, span, cut)
        if self._state.head.intent is None or parts == span.slices:
            return span
        head = self._state.divide(parts) if parts else self._abandon()
        with translate_errors(f"beginning on {self._sink.address()}"):
            self._head(head)
        return replace(span, slices=parts)

    def _abandon(self) -> ClickhouseHead:
        # Where rows are upserted, those that are read in their place have a higher version.
        for name in () if self._sink.upsert_mode else self._state.pending:
            raise PermanentError(
                f"flow {self._target.flow}: nobody knows whether the rows of {name} are in "
                f"{self._sink.address()}: a run was stopped at their INSERT, and they cannot be "
                "read again as they were. Start from earliest with table: truncate"
            )
        return self._state.restart(lasting(self.checkpoint.positions))

    @override
    def ticket(self) -> Ticket:
        table, schema, upsert = self._table.found, self._table.schema(), self._table.upsert
        if table is None or schema is None:
            raise self._sink.no_table()
        partitioned, marks = bool(table.partition_key), (upsert.version, upsert.deleted)
        kept = partitioned, table.is_replicated, *marks, table.column_types, table.viewed
        facts = Facts(table.uuid, self._at, *kept)
        failpoint = failpoints.from_environment()
        target = replace(self._target, reading=self._state.head.reading)
        return Ticket(target, self._run, self._branch.epoch, facts.into(schema), failpoint)

    @override
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        failpoints.reach("clickhouse.finish")
        receipts = [r for r in receipts if r.branch == self._target.branch]
        with translate_errors(f"finishing on {self._sink.address()}"):
            if any(isinstance(piece, PartSlice) for piece in span.slices):
                self._finish_parts(source)
            else:
                self._state = state_after(self._branch, self._state, span, receipts, self._at)
        return self.checkpoint

    @override
    def forget(self) -> None:
        with translate_errors(f"forgetting {self._sink.address()}"):
            head, generation = self._state.restart({}), self._branch.generation()
            head = replace(head, source=None, target=None, manifest="", totals=Totals())
            self._head(replace(head, generation=generation))

    @override
    def close(self) -> None:
        self._lease.close()

    def _open(self) -> None:
        with translate_errors(f"opening {self._sink.address()}"):
            checkpoint_table.prepare(self._client, self._database)
            trial_table.sweep(self._client, self._database)
            found = self._table.find()
            replicated = bool(found and found.is_replicated)
            if replicated:
                checkpoint_table.check_replicated(self._client, self._database)
            self._log = ClickhouseCheckpointTable(
                self._client, self._database, self._name, self._target, replicated=replicated
            )
            self._branch = BranchCheckpoint(self._log, self._target)
            self._state = self._branch.take(self._run)
            self._log.prune(self._state.head)
            if found is not None and found.viewed:
                for note in forgetful_views(self._client, found):
                    log.warning("flow %s: %s", self._target.flow, note)
            self._empty()

    def _empty(self) -> None:
        emptying = empty_table.ClickhouseEmptying(self._client, self._branch, self._target)
        self._state = emptying.finish(self._state, self._table.found, self._database)

    def _check_emptied(self, table: ClickhouseTable) -> None:
        refuse_shared(self._target, self._sink.address(), self._log.others(table.uuid))
        if empty_table.holds_rows(self._client, table):
            empty_table.check(table, self._target)
            empty_table.check_size(self._client, table, self._target)

    def _record(self, span: Span) -> None:
        known = self._state.snapshot()
        head = replace(
            recovery.head_at_begin(known, span, self._at, self._log.blocks),
            manifest=self._target.manifest,
            target=known.target or self._table.identity,
        )
        if head != known:
            self._head(head)

    def _finish_parts(self, source: SourceSession) -> None:
        self._state = self._branch.read()
        if not self._state.head.intent or not all(part.empty for part in self._state.parts):
            return
        self._head(self._state.restart(source.fold(self.checkpoint.positions)))

    def _head(self, head: ClickhouseHead) -> None:
        self._state = self._branch.head(head)
