"""What a finished pass has staged becomes one commit: rows and stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile

from dataflow_assets.connectors.iceberg.catalog import errors
from dataflow_assets.connectors.iceberg.merge.merge import Merge, Moved
from dataflow_assets.connectors.iceberg.merge.stage import Staged
from dataflow_assets.connectors.iceberg.options import IcebergSinkOptions
from dataflow_assets.connectors.iceberg.rejected.table import RejectedTable, split
from dataflow_assets.connectors.iceberg.sink.checkpoint_property import CheckpointProperty, Step
from dataflow_assets.connectors.iceberg.table.checkpoint import StoredCheckpoint, merged
from dataflow_assets.connectors.iceberg.table.commit import Change
from dataflow_assets.connectors.iceberg.table.data_files import data_file
from dataflow_assets.contracts import (
    OffsetSlice,
    PartSlice,
    Positions,
    Receipt,
    Slice,
    SourceSession,
    Target,
    Totals,
)
from dataflow_assets.errors import TakenOver, TransientError
from dataflow_assets.failpoints import reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MERGES = 5  # of one span, each on the head that another writer has left


class Publisher:
    """Commits the spans of one session."""

    def __init__(
        self,
        sink: IcebergSinkOptions,
        target: Target,
        checkpoint: CheckpointProperty,
        rejected: RejectedTable,
    ) -> None:
        self._sink, self._target = sink, target
        self._property, self._rejected = checkpoint, rejected
        self._merge: Merge | None = None

    def stage(self, receipts: Sequence[Receipt], spark: Callable[[], SparkSession]) -> None:
        """Merges the staged rows into new files on the head that the table has now."""
        data, _ = split([text for receipt in receipts for text in receipt.staged])
        self._merge = None
        if data:
            staged = Staged.of(data)
            self._property.look()
            with errors(self._sink, "merge into"):
                self._merge = Merge(self._sink, self._property.table, staged, spark)
                self._merge.run()
            reach("iceberg.merged")

    def publish(
        self,
        slices: Sequence[Slice],
        receipts: Sequence[Receipt],
        source: SourceSession,
    ) -> None:
        """Rejected records first, in their own table; then rows and checkpoint as one commit."""
        data, rejected = split([text for receipt in receipts for text in receipt.staged])
        totals = sum((receipt.totals for receipt in receipts), Totals())
        upto = dict(source.fold(merged(self._property.stored.positions, slices)))
        with errors(self._sink, "store rejected records of"):
            self._rejected.publish(rejected, self._property.stored)
        step = self._consumed(upto, totals, source.identity)
        if self._merge is not None:
            self._move(step, self._merge)
        else:
            self._append(step, data)

    def _append(self, step: Step, documents: Sequence[str]) -> None:
        files = [data_file(text, self._property.table) for text in documents]
        self._commit(step, replace(self._property.change(), files=files, move_head=bool(files)))

    def _move(self, step: Step, merge: Merge) -> None:
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
                self._commit(step, change)
            except Moved:
                with errors(self._sink, "merge into"):
                    merge = merge.again(self._property.table)
                continue
            reach("iceberg.moved")
            merge.drop()
            return
        raise TransientError(
            f"table {'.'.join(self._sink.identifier)}: other writers change the same rows faster "
            f"than they can be merged ({MERGES} times)"
        )

    def _commit(self, step: Step, change: Change) -> None:
        try:
            self._property.commit(step, change)
        except (TakenOver, Moved):
            self._discard(change.files)
            raise

    def _discard(self, files: Sequence[DataFile]) -> None:
        if self._property.committer is not None:
            self._property.committer.discard(files)

    def _consumed(self, upto: Positions, totals: Totals, source: str) -> Step:
        """The checkpoint behind this span, made of the one that the span was planned on alone."""
        planned = dict(self._property.stored.positions)

        def step(found: StoredCheckpoint) -> StoredCheckpoint:
            if dict(found.positions) != planned:
                raise TransientError("the checkpoint has moved since the span was planned")
            return replace(
                found,
                positions=upto,
                totals=found.totals + totals,
                source=source,
                target=self._property.identity,
                manifest=self._target.manifest,
                intent=(),
            )

        return step


def done(piece: Slice, positions: Positions) -> bool:
    """True where the checkpoint covers the slice."""
    known = positions.get(piece.partition)
    if isinstance(piece, OffsetSlice):
        return isinstance(known, int) and known >= piece.upto
    return known == piece.upto


def complete(slices: Sequence[Slice], receipts: Sequence[Receipt], branch: str) -> list[Receipt]:
    """The receipts of these slices. Raises TransientError where a part was not read to its end.

    The pass has succeeded as a whole, so an offset slice without a receipt held no record.
    """
    wanted = {piece.partition for piece in slices}
    own = [r for r in receipts if r.branch == branch and r.partition in wanted]
    reached = {(r.partition, r.position) for r in own}
    for piece in slices:
        if isinstance(piece, PartSlice) and (piece.partition, piece.upto) not in reached:
            raise TransientError(f"part {piece.partition} was not read to its end")
    return own
