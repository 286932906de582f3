"""One branch's checkpoint as a state machine: what every sink decides alike, without a server.

| event | what decides | what happens |
|---|---|---|
| `begin` | `check_planned_from` | a bounded read begins only at the position it was planned from |
| `begin` | `unknown_starts`, `intent_of` | both are stored before anything is read |
| `begin` after a crash | `resume` | the recorded parts are read again, committed ones are empty |
| a slice is committed | `check_planned`, `check_recorded` | only from where it was planned |
| a chunk is written | `without_covered` | what the checkpoint covers is left out |
| `finish` | `is_covered`, `advance` | what holds no records is stepped over |
| another driver has the epoch | `taken_over` | TakenOver: the run ends for all branches |
| the checkpoint is gone | `checkpoint_removed` | CheckpointRemoved: the branch ends, others go on |
| the checkpoint was set back | `checkpoint_moved` | PermanentError: the same |

A checkpoint that somebody has moved *forward* is obeyed: what it covers is not stored again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

import numpy as np

from dataflow_assets.contracts import (
    OFFSET,
    Chunk,
    OffsetSlice,
    PartSlice,
    Position,
    Positions,
    Slice,
    Span,
    lasting,
)
from dataflow_assets.errors import CheckpointRemoved, PermanentError, TakenOver


def is_covered(piece: Slice, position: Position | None) -> bool:
    """Returns whether everything of a slice is committed.

    Called by sessions in `finish` on the driver, and by writers, once for each slice.

    Args:
        piece: a slice of a span, as planned or as recorded.
        position: where its partition is by the stored checkpoint; None for nowhere yet.
    """
    if isinstance(piece, OffsetSlice):
        return isinstance(position, int) and position >= piece.upto
    return position == piece.upto


def without_covered(chunk: Chunk, piece: Slice, position: Position | None) -> Chunk | None:
    """Returns what of a chunk is not committed yet.

    Called by writers inside their task, for each chunk. A slice begins below the checkpoint where
    another branch is behind, or where a first attempt was committed.

    Args:
        chunk: of the slice, its rows with their offsets.
        piece: the slice.
        position: where its partition is by the stored checkpoint; None for nowhere yet.

    Returns:
        The chunk from the checkpoint on; None where nothing of it is left.
    """
    if is_covered(piece, position):
        return None
    if not isinstance(position, int):
        return chunk
    if chunk.seen <= position:
        return None
    first = int(np.searchsorted(chunk.rows.column(OFFSET).to_numpy(), position))
    rejected = [one for one in chunk.rejected if one.offset >= position]
    return replace(chunk, rows=chunk.rows.slice(first), rejected=rejected)


def resume(parts: Iterable[PartSlice], positions: Positions) -> tuple[PartSlice, ...]:
    """The parts of an intent as they are to be read now: those that are committed are empty.

    Called by sessions in `begin` on the driver, after a crash, and in `finish`.

    Args:
        parts: as `intent_of` has recorded them.
        positions: those of the stored checkpoint.
    """
    return tuple(
        replace(part, after=part.upto) if is_covered(part, positions.get(part.partition)) else part
        for part in parts
    )


def intent_of(span: Span) -> tuple[PartSlice, ...]:
    """Returns what a crash must find again of a span: its parts, whole, with their borders.

    Called by sessions in `begin` and `divide` on the driver, once for each micro-batch.

    Returns:
        Nothing for spans of offsets, and for bounded reads without anything left to read.
    """
    parts = tuple(piece for piece in span.slices if isinstance(piece, PartSlice))
    return () if all(part.empty for part in parts) else parts


def unknown_starts(span: Span, known: Container[str]) -> dict[str, Position | None]:
    """Returns where the partitions of a span begin that the checkpoint does not know yet.

    Called by sessions in `begin` on the driver, once for each micro-batch.

    Args:
        span: as planned.
        known: the partitions of the stored checkpoint.

    Returns:
        By partition its start position; None for a part that was never begun.
    """
    return {s.partition: s.after for s in span.slices if s.partition not in known}


def advance(positions: Positions, slices: Iterable[Slice]) -> dict[str, Position]:
    """The positions once these slices are done; offsets never move back.

    Called by sessions in `finish` on the driver.
    """
    ends = {
        piece.partition: piece.upto
        for piece in slices
        if not is_covered(piece, positions.get(piece.partition))
    }
    return {**positions, **ends}


def check_planned(flow: str, piece: Slice, position: Position | None) -> None:
    """Raises PermanentError where a slice was planned beyond the stored checkpoint.

    Called by writers in their task before a slice is committed, and by sessions that publish. A
    slice may begin below the checkpoint (another branch is behind, a first attempt was committed),
    and its first row may lie beyond both.

    Args:
        flow: namespace/name.
        piece: as planned.
        position: where its partition is by the stored checkpoint; None for nowhere.
    """
    if isinstance(piece, OffsetSlice):
        fits = isinstance(position, int) and position >= piece.after
    else:
        fits = position in (piece.after, piece.upto)
    if not fits:
        raise checkpoint_moved(flow, piece, position)


def check_planned_from(flow: str, span: Span, positions: Positions) -> None:
    """Raises PermanentError where a bounded read was planned from another position.

    Called by sessions in `begin` on the driver, before the parts are recorded: whatever its source
    says of two positions, a branch never steps over rows that it has not got, nor gets rows twice.

    Args:
        flow: namespace/name.
        span: as planned; one that is empty, or planned by nobody, is let through.
        positions: those of the stored checkpoint.
    """
    planned, known = span.planned, lasting(positions)
    if planned is not None and intent_of(span) and known != lasting(planned):
        partition, after = next(iter(planned.items()), ("", None))
        raise checkpoint_moved(flow, PartSlice(partition, str(after), ""), known.get(partition))


def check_recorded(flow: str, piece: Slice, intent: Iterable[PartSlice]) -> None:
    """Raises TakenOver where a part is none of the span that is recorded now.

    Called by writers in their task, before a part is committed: parts of the next span have the
    names of those of the last one, and a task of the last one may come late.

    Args:
        flow: namespace/name.
        piece: the part that the task has read.
        intent: the parts that the stored checkpoint names.
    """
    known = {(part.partition, part.upto, part.part) for part in intent}
    if isinstance(piece, PartSlice) and (piece.partition, piece.upto, piece.part) not in known:
        raise TakenOver(
            f"flow {flow}: part {piece.partition} up to {piece.upto} is not in the span that is "
            "recorded: this task came too late and stops"
        )


def taken_over(flow: str, run: str) -> TakenOver:
    """The error of a driver, or of one of its tasks, whose epoch somebody else has.

    Args:
        flow: namespace/name.
        run: who has it, as `Run` is printed.
    """
    return TakenOver(
        f"flow {flow} was taken over by {run}; this run stops, nothing of it is lost: what it has "
        "committed is in the checkpoint"
    )


def checkpoint_removed(flow: str, place: object) -> CheckpointRemoved:
    """The error of a driver, or of one of its tasks, that finds no checkpoint any more.

    Args:
        flow: namespace/name.
        place: what held the checkpoint: a schema, a topic, a table.
    """
    return CheckpointRemoved(
        f"the checkpoint of flow {flow} was removed while it ran (from {place}); restore it, or "
        "start the flow again: without a checkpoint it starts over"
    )


def checkpoint_moved(flow: str, piece: Slice, position: Position | None) -> PermanentError:
    """The error where the stored checkpoint is behind the start of a slice.

    Args:
        flow: namespace/name.
        piece: as planned.
        position: where its partition is by the stored checkpoint.
    """
    return PermanentError(
        f"the checkpoint of flow {flow} was moved by somebody: partition {piece.partition} is at "
        f"{position}, but the micro-batch was planned from {piece.after}; start the flow again "
        "from its checkpoint, or reset it"
    )
