"""The end of a micro-batch that was read by offsets: what its tasks committed, and the gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from dataflow_assets.connectors.clickhouse.sink.checkpoint import BranchCheckpoint
from dataflow_assets.connectors.clickhouse.sink.writer import ClickhouseCommitted
from dataflow_assets.connectors.clickhouse.table.checkpoint_log import (
    Border,
    ClickhouseDone,
    ClickhousePartition,
    ClickhouseState,
)
from dataflow_assets.contracts import OffsetSlice, Position, Receipt, Span, Totals, utc_now
from dataflow_assets.errors import TransientError
from dataflow_assets.sdk.sink.decide import check_planned, is_covered


def state_after(
    branch: BranchCheckpoint,
    state: ClickhouseState,
    span: Span,
    receipts: Sequence[Receipt],
    at: datetime,
) -> ClickhouseState:
    """The state after these receipts; they carry what the tasks committed.

    Called by the session on the driver, once for each micro-batch. Nothing is asked of the server
    where the receipts have no gap.

    Args:
        branch: the branch's checkpoint, under the epoch of this run.
        state: as it was before the pass.
        span: what was read.
        receipts: of this branch.
        at: the moment at which the span was begun.

    Raises:
        TransientError: another run writes to the branch, or records are gone that were recorded.
    """
    found = {r.partition: ClickhouseCommitted.parse(r.staged[0]) for r in receipts if r.staged}
    ends = span.upto
    for name, committed in found.items():
        if committed.seen is not None:
            _shorten(branch, name, committed.seen, ends[name])
    moved = {name: committed.partition for name, committed in found.items()}
    for piece in span.slices:
        reached = moved[piece.partition].position if piece.partition in moved else None
        if isinstance(piece, OffsetSlice) and not piece.empty and not is_covered(piece, reached):
            moved[piece.partition] = _step_over(branch, piece, at)
    pending = {n: b for n, b in state.pending.items() if n not in moved}
    return replace(state, partitions={**state.partitions, **moved}, pending=pending)


def _shorten(branch: BranchCheckpoint, partition: str, seen: int, end: Position) -> None:
    """All there is was read, and a chunk that was recorded goes on behind it."""
    if seen == end:  # no: the task has stopped there, and the chunk was recorded meanwhile
        raise TransientError(
            f"flow {branch.flow}: another run has recorded a chunk of partition {partition} that "
            f"goes on behind offset {seen}"
        )
    branch.whole(branch.read(partition), partition, seen)
    raise TransientError(
        f"flow {branch.flow}: records of partition {partition} from {seen} on are gone since their "
        "chunk was recorded: it ends there by now"
    )


def _step_over(branch: BranchCheckpoint, piece: OffsetSlice, at: datetime) -> ClickhousePartition:
    """Nothing stands between the checkpoint and the end of the slice: the whole job says so."""
    name = piece.partition
    state = branch.read(name)
    check_planned(branch.flow, piece, state.partitions[name].position)
    if name in state.pending:
        branch.record_done(state, name, ClickhouseDone(Totals(), utc_now()))
        state = branch.read(name)
    while not is_covered(piece, state.partitions[name].position):
        border = Border(piece.upto, at, 0, state.version, empty=True)
        state = branch.propose(state, name, border)
        if name in state.pending:
            raise TransientError(f"flow {branch.flow}: another run writes to it as well")
    return state.partitions[name]
