"""`IcebergSinkSession`: the driver's end. One epoch, one checkpoint, one commit per micro-batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pyiceberg.table import Table
from typing_extensions import override

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
from dataflow_assets.connectors.iceberg.table.snapshot import total_files, total_records
from dataflow_assets.connectors.iceberg.types import row_schema
from dataflow_assets.contracts import (
    AddsColumns,
    CountsFiles,
    CountsRows,
    Note,
    Receipt,
    Run,
    Span,
    StagesWithSpark,
    Target,
    TargetTable,
    Ticket,
    refuse_shared,
)
from dataflow_assets.sdk.sink.checkpoint_store import CheckpointStore, StateChange
from dataflow_assets.sdk.sink.session import TransactionalSession, complete
from dataflow_assets.sdk.sink.state import BranchState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class IcebergSinkTarget(TargetTable, AddsColumns, CountsRows, CountsFiles):
    """The table of one branch, and the commits that change its columns."""

    def __init__(self, sink: TableSinkOptions, checkpoint: CheckpointProperty) -> None:
        self._sink, self._property = sink, checkpoint

    @property
    @override
    def identity(self) -> str | None:
        return self._property.identity

    @property
    @override
    def difference(self) -> str | None:
        """That its last snapshots were taken out."""
        if not self._property.was_rolled_back:
            return None
        return (
            "was rolled back to a snapshot before the flow's last commit (rollback_to_snapshot or "
            "the like): rows that the checkpoint counts are no longer in it"
        )

    @override
    def schema(self) -> pa.Schema | None:
        """The columns that records can fill, JSON text marked, and the key of upserts."""
        if self._property.committer is None:
            return None
        columns = row_schema(self._property.table.schema())
        key = json.dumps(self._sink.key).encode()
        return columns.with_metadata({Note.KEY: key}) if self._sink.key else columns

    @override
    def row_count(self) -> int | None:
        """Returns what the snapshot counts, where others left no deletes in files of their own."""
        return total_records(self._property.table) if self._property.committer else None

    @override
    def file_count(self) -> int | None:
        """Returns what the snapshot counts."""
        return total_files(self._property.table) if self._property.committer else None

    @override
    def create(self, sample: pa.Schema) -> None:
        """The manifest's `columns` win over a sample."""
        if self._property.committer is None:
            self._property.make_table(sample)

    @override
    def add_columns(self, columns: pa.Schema) -> None:
        """Commits the schema once; whoever writes by the old one goes on with nulls."""
        with translate_errors(self._sink, "add columns to"):
            create_table.add_columns(self._property.table, self._sink, columns)
        self._property.read()

    @override
    def holds_rows(self) -> bool:
        """True as well where rows may all be deleted by files of others."""
        return self._property.committer is not None and total_records(self._property.table) != 0


class IcebergCheckpoints(CheckpointStore):
    """The state is a property of the table, moved by the commit that adds the files."""

    system: ClassVar = "iceberg"

    def __init__(self, sink: TableSinkOptions, target: Target, run: Run) -> None:
        self._sink, self._target = sink, target
        self.property = CheckpointProperty(sink, target, run)
        self.rejected = IcebergRejectedTable(self.property.catalog, sink, target)
        self.publisher = IcebergPublisher(sink, self.property, self.rejected)
        self._upkeep = (Upkeep(sink), Upkeep(sink)) if sink.keeps_itself else None

    @override
    def load(self, receipts: Sequence[Receipt] = ()) -> BranchState | None:
        """From the table as it is now."""
        return self.property.read()

    @override
    def change(self, step: StateChange) -> BranchState:
        """No rows depend on it: the head stays where it is."""
        return self.property.commit(step, replace(self.property.change(), move_head=False))

    @override
    def fence(self, step: StateChange, *, empty: bool = False) -> BranchState:
        """Moves the head: who loaded the table before can commit no more."""
        return self.property.commit(step, self._emptying() if empty else None, fences=True)

    @override
    def sharing(self) -> Mapping[str, str]:
        known = self.property.committer is not None
        return others(self.property.table, self._target) if known else {}

    @override
    def publish(self, step: StateChange, receipts: Sequence[Receipt]) -> BranchState:
        """One commit: the files of all slices and the state. Without files the state alone."""
        state = self.publisher.publish(step, receipts)
        if self._upkeep is not None:
            self._tidy(*self._upkeep)
        if self._sink.read_by_path:
            hint.leave(self.property.table)
        return state

    def _tidy(self, rows: Upkeep, rejected: Upkeep) -> None:
        """Both tables, each after commits of its own."""
        if self.property.committer is not None:
            rows.after_commit(self.property.committer)
        committer, self.rejected.committer = self.rejected.committer, None
        if committer is not None:
            rejected.after_commit(committer)

    def _emptying(self) -> TableChange:
        """Takes every row out, on a head of which it is known that no other flow has rows in it."""

        def guard(table: Table) -> None:
            refuse_shared(self._target, self._sink.address(), others(table, self._target))

        return replace(self.property.change(), empties=True, guard=guard)


class IcebergSinkSession(TransactionalSession, StagesWithSpark):
    """One epoch, one checkpoint, one commit for each micro-batch."""

    _sink: TableSinkOptions
    _store: IcebergCheckpoints

    def __init__(self, sink: TableSinkOptions, target: Target, run: Run) -> None:
        store = IcebergCheckpoints(sink, target, run)
        super().__init__(sink, target, run, IcebergSinkTarget(sink, store.property), store)

    @override
    def begin(self, span: Span) -> Span:
        """Looks at the table; a commit only where there is something new to record."""
        self._store.property.follow()
        return super().begin(span)

    @override
    def ticket(self) -> Ticket:
        """Carries all that tasks need, so that they ask the catalog for nothing."""
        ticket, store = super().ticket(), self._store
        with translate_errors(self._sink, "look for rejected records of"):
            rejected = store.rejected.stored_tokens(store.property.stored)
        ticket = replace(ticket, schema=self._body_columns(ticket.schema))
        target = write_target(store.property.table)
        return WriteTicket(**vars(ticket), write_target=target, rejected=rejected)

    def _body_columns(self, columns: pa.Schema) -> pa.Schema:
        """The columns that come from bodies: all but that of the record's time."""
        at = columns.get_field_index(self._sink.traits.record_time or "")
        return columns if at < 0 else columns.remove(at)

    @override
    def stage(
        self, span: Span, receipts: Sequence[Receipt], spark: Callable[[], SparkSession]
    ) -> None:
        """Merges the rows of upserts into new files, which no reader sees."""
        left = self._state.remaining_slices(span)
        if left and self._sink.upsert_mode:
            self._state = self._check_owner(self._store.load())
            self._store.publisher.stage(complete(left, receipts, self._target.branch), spark)
