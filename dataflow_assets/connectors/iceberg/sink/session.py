"""`IcebergSinkSession`: the driver's end. One epoch, one checkpoint, one commit per micro-batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.table import Table

from dataflow_assets.connectors.iceberg import hint
from dataflow_assets.connectors.iceberg.errors import translate_errors
from dataflow_assets.connectors.iceberg.maintenance.upkeep import Upkeep
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.rejected.table import IcebergRejectedTable
from dataflow_assets.connectors.iceberg.sink.checkpoint import CheckpointProperty
from dataflow_assets.connectors.iceberg.sink.publish import IcebergPublisher
from dataflow_assets.connectors.iceberg.sink.writer import WriteTicket
from dataflow_assets.connectors.iceberg.table import create_table
from dataflow_assets.connectors.iceberg.table.checkpoint import (
    others,
)
from dataflow_assets.connectors.iceberg.table.commit import TableChange
from dataflow_assets.connectors.iceberg.table.data_files import write_target
from dataflow_assets.connectors.iceberg.table.snapshot import total_records
from dataflow_assets.connectors.iceberg.types import row_schema
from dataflow_assets.contracts import (
    AddsColumns,
    CountsRows,
    Note,
    Receipt,
    Run,
    Span,
    StagesWithSpark,
    Target,
    Ticket,
    refuse_shared,
)
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.sink.session import StateChange, TransactionalSession, complete
from dataflow_assets.sdk.sink.state import BranchState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class IcebergSinkSession(TransactionalSession, AddsColumns, CountsRows, StagesWithSpark):
    """The state is a property of the table, moved by the commit that adds the files."""

    _sink: TableSinkOptions

    def __init__(self, sink: TableSinkOptions, target: Target, run: Run) -> None:
        self._property = CheckpointProperty(sink, target, run)
        self._rejected = IcebergRejectedTable(self._property.catalog, sink, target)
        self._publisher = IcebergPublisher(sink, self._property, self._rejected)
        self._upkeep = (Upkeep(sink), Upkeep(sink)) if sink.keeps_itself else None
        super().__init__(sink, target, run)

    @property
    def identity(self) -> str | None:
        return self._property.identity

    @property
    def difference(self) -> str | None:
        """That its last snapshots were taken out."""
        if not self._property.was_rolled_back:
            return None
        return (
            "was rolled back to a snapshot before the flow's last commit (rollback_to_snapshot or "
            "the like): rows that the checkpoint counts are no longer in it"
        )

    def schema(self) -> pa.Schema | None:
        """The columns that records can fill, JSON text marked, and the key of upserts."""
        if self._property.committer is None:
            return None
        columns = row_schema(self._property.table.schema())
        key = json.dumps(self._sink.key).encode()
        return columns.with_metadata({Note.KEY: key}) if self._sink.key else columns

    def row_count(self) -> int | None:
        """Returns what the snapshot counts, where others left no deletes in files of their own."""
        return total_records(self._property.table) if self._property.committer else None

    def create(self, sample: pa.Schema) -> None:
        """Makes the table with the checkpoint in it; the manifest's `columns` win over a sample."""
        if self._property.committer is not None:
            return
        self._check_owner(self.read())
        properties = {self._property.key: self._property.stored.text()}
        with translate_errors(self._sink, "create"):
            table = create_table.create(self._property.catalog, self._sink, sample, properties)
            create_table.check(table, self._sink.key)
        self._property.hold(table)
        self._state = self.fence(self._owning(lambda found: found.adopt(self.identity)))
        self._property.drop_aside()

    def add_columns(self, columns: pa.Schema) -> None:
        """Commits the schema once; whoever writes by the old one goes on with nulls."""
        with translate_errors(self._sink, "add columns to"):
            create_table.add_columns(self._property.table, self._sink, columns)
        self._state = self._check_owner(self.read())

    def holds_rows(self) -> bool:
        """True as well where rows may all be deleted by files of others."""
        return self._property.committer is not None and total_records(self._property.table) != 0

    def read(self) -> BranchState | None:
        """From the table as it is now."""
        return self._property.read()

    def record(self, step: StateChange) -> BranchState:
        """No rows depend on it: the head stays where it is."""
        return self._property.commit(step, replace(self._property.change(), move_head=False))

    def fence(self, step: StateChange, *, empty: bool = False) -> BranchState:
        """Moves the head: who loaded the table before can commit no more."""
        return self._property.commit(step, self._emptying() if empty else None, fences=True)

    def publish(self, step: StateChange, receipts: Sequence[Receipt]) -> BranchState:
        """One commit: the files of all slices and the state. Without files the state alone."""
        state = self._publisher.publish(step, receipts)
        if self._upkeep is not None:
            self._tidy(*self._upkeep)
        if self._sink.read_by_path:
            hint.leave(self._property.table)
        return state

    def _tidy(self, rows: Upkeep, rejected: Upkeep) -> None:
        """Both tables, each after commits of its own."""
        if self._property.committer is not None:
            rows.after_commit(self._property.committer)
        committer, self._rejected.committer = self._rejected.committer, None
        if committer is not None:
            rejected.after_commit(committer)

    def _emptying(self) -> TableChange:
        """Takes every row out, on a head of which it is known that no other flow has rows in it."""

        def guard(table: Table) -> None:
            refuse_shared(self._target, self._sink.address(), others(table, self._target))

        return replace(self._property.change(), empties=True, guard=guard)

    def begin(self, span: Span) -> Span:
        """Looks at the table; a commit only where there is something new to record."""
        self._property.follow()
        begun = super().begin(span)
        reach("iceberg.begin")
        return begun

    def ticket(self) -> Ticket:
        """Carries all that tasks need, so that they ask the catalog for nothing."""
        ticket = super().ticket()
        with translate_errors(self._sink, "look for rejected records of"):
            rejected = self._rejected.stored_tokens(self._property.stored)
        return WriteTicket(
            ticket.target,
            ticket.run,
            ticket.epoch,
            self._body_columns(ticket.schema),
            ticket.failpoint,
            ticket.positions,
            write_target=write_target(self._property.table),
            rejected=rejected,
        )

    def _body_columns(self, columns: pa.Schema) -> pa.Schema:
        """The columns that come from bodies: all but that of the record's time."""
        at = columns.get_field_index(self._sink.traits.record_time or "")
        return columns if at < 0 else columns.remove(at)

    def stage(
        self, span: Span, receipts: Sequence[Receipt], spark: Callable[[], SparkSession]
    ) -> None:
        """Merges the rows of upserts into new files, which no reader sees."""
        left = self._state.remaining_slices(span)
        if left and self._sink.upsert_mode:
            self._state = self._check_owner(self.read())
            self._publisher.stage(complete(left, receipts, self._target.branch), spark)
