"""What a finished pass has staged becomes one commit: rows and checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dataflow_assets.connectors.iceberg.errors import translate_errors
from dataflow_assets.connectors.iceberg.merge.merge import HeadMoved, IcebergMerge
from dataflow_assets.connectors.iceberg.merge.stage import IcebergStaged
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.rejected.table import IcebergRejectedTable, split
from dataflow_assets.connectors.iceberg.sink.checkpoint import CheckpointProperty
from dataflow_assets.connectors.iceberg.table.commit import TableChange
from dataflow_assets.connectors.iceberg.table.data_files import data_file
from dataflow_assets.contracts import Receipt
from dataflow_assets.errors import CheckpointRemoved, TakenOver, TransientError
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.sink.checkpoint_store import StateChange
from dataflow_assets.sdk.sink.state import BranchState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MERGES = 5  # of one span, each on the head that another writer has left


class IcebergPublisher:
    """Commits the spans of one session."""

    def __init__(
        self, sink: TableSinkOptions, checkpoint: CheckpointProperty, rejected: IcebergRejectedTable
    ) -> None:
        self._sink, self._property, self._rejected = sink, checkpoint, rejected
        self._merge: IcebergMerge | None = None

    def stage(self, receipts: Sequence[Receipt], spark: Callable[[], SparkSession]) -> None:
        """Merges the staged rows into new files on the head that the table has now."""
        data, _ = split([text for receipt in receipts for text in receipt.staged])
        self._merge = None
        if data:
            staged = IcebergStaged.of(data)
            with translate_errors(self._sink, "merge into"):
                self._merge = IcebergMerge(self._sink, self._property.table, staged, spark)
                self._merge.run()
            reach("iceberg.merged")

    def publish(self, step: StateChange, receipts: Sequence[Receipt]) -> BranchState:
        """Rejected records first, in their own table; then rows and checkpoint as one commit."""
        data, rejected = split([text for receipt in receipts for text in receipt.staged])
        with translate_errors(self._sink, "store rejected records of"):
            self._rejected.publish(rejected, self._property.stored)
        if self._merge is not None:
            return self._move(step, self._merge)
        files = [data_file(text, self._property.table) for text in data]
        change = replace(self._property.change(), files=files, move_head=bool(files))
        return self._commit(step, change)

    def _move(self, step: StateChange, merge: IcebergMerge) -> BranchState:
        """The commit that readers see; on the head that others have left, merged once more."""
        for _ in range(MERGES):
            made = merge.made
            change = replace(
                self._property.change(),
                files=made.files,
                gone=made.gone,
                guard=merge.guard,
                move_head=bool(made.files or made.gone),
            )
            try:
                state = self._commit(step, change)
            except HeadMoved:
                with translate_errors(self._sink, "merge into"):
                    merge = merge.again(self._property.table)
                continue
            reach("iceberg.moved")
            merge.drop()
            return state
        raise TransientError(
            f"table {'.'.join(self._sink.identifier)}: other writers change the same rows faster "
            f"than they can be merged ({MERGES} times)"
        )

    def _commit(self, step: StateChange, change: TableChange) -> BranchState:
        try:
            return self._property.commit(step, change)
        except (TakenOver, CheckpointRemoved, HeadMoved):
            if self._property.committer is not None:
                self._property.committer.discard(change.files)
            raise
