"""What is recorded before rows are inserted, and what a run that died has left of it.

Chunks may be in the table already; they are inserted again under their own tokens.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime, timedelta

from dataflow_assets.connectors.clickhouse.table.checkpoint_log import (
    Border,
    ClickhouseHead,
    ClickhouseIntent,
    ClickhousePartition,
    ClickhouseState,
)
from dataflow_assets.connectors.clickhouse.table.table import ClickhouseTable
from dataflow_assets.contracts import (
    Cut,
    OffsetSlice,
    PartSlice,
    Slice,
    Span,
    Target,
    divide,
    utc_now,
)
from dataflow_assets.errors import Outdated, PermanentError
from dataflow_assets.sdk.sink.decide import intent_of, unknown_starts

_SHARE = 0.9  # of the window: other INSERTs go on while a chunk is read again


def head_at_begin(head: ClickhouseHead, span: Span, at: datetime, blocks: int) -> ClickhouseHead:
    """The head with the start of each new partition and, for a span of parts, their intent."""
    parts, intent = intent_of(span), None
    if parts:
        # The rows of a part that was read before are not known by their number of blocks.
        intent = ClickhouseIntent(uuid.uuid4().hex, at, blocks, parts)
    starts = unknown_starts(span, head.partitions).items()
    new = {name: ClickhousePartition(start) for name, start in starts if start is not None}
    return replace(head, partitions={**head.partitions, **new}, intent=intent)


def unfinished_span(state: ClickhouseState, span: Span) -> Span | None:
    """The recorded chunks as a span with the moment they were begun at; None where all is done.

    Chunks of another moment wait for the next span: steps know only one now.
    """
    intent = state.head.intent
    if intent is not None and intent.parts:
        return Span(state.parts, at=intent.at)
    wanted = [piece.partition for piece in span.slices if not piece.empty]
    pending = [state.pending[name] for name in wanted if name in state.pending]
    if not pending:
        return None
    at = min(border.at for border in pending)
    return Span(tuple(_again(state, piece, at) for piece in span.slices), at=at, whole=True)


def _again(state: ClickhouseState, piece: Slice, at: datetime) -> Slice:
    border = state.pending.get(piece.partition)
    if not isinstance(piece, OffsetSlice):
        return piece
    position = state.partitions[piece.partition].position if border else piece.after
    if border is None or border.at != at or piece.empty or not isinstance(border.upto, int):
        return replace(piece, upto=piece.after)
    upto = state.whole.get(piece.partition, border.upto)
    return OffsetSlice(piece.partition, int(position or 0), upto)


def cut_parts(state: ClickhouseState, span: Span, cut: Cut) -> tuple[PartSlice, ...]:
    """The parts of an unfinished span as they are read now.

    One that is recorded as a chunk may stand: it is inserted again under its own token, unless it
    is gone. The rows that replace it have a higher version. Where nothing of the span is committed,
    and nothing is read instead, none is left.
    """
    known = [piece for piece in span.slices if isinstance(piece, PartSlice)]
    if not any(part.empty or cut(part) for part in known):
        return ()
    stays = state.pending.keys() - {part.partition for part in cut.gone}
    return divide(known, lambda part: (part,) if part.partition in stays else cut(part))


def check_window(
    state: ClickhouseState, blocks: int, place: tuple[ClickhouseTable | None, str], target: Target
) -> None:
    """Raises Outdated where the table may have forgotten a chunk that is not done."""
    table, name = place
    if table is None:
        return
    for partition, (what, recorded, at) in _uncertain(state).items():
        given = blocks - recorded
        age = utc_now() - at
        late = table.seconds is not None and age > timedelta(seconds=_SHARE * table.seconds)
        if given > _SHARE * table.window or late:
            raise Outdated(
                f"flow {target.flow}: nobody knows whether {what} of partition {partition} of "
                f"{target.source} are in table {name}: a run was stopped at them at {at}, and "
                f"the table has had {given} INSERTs since then, of {table.window} that it "
                "remembers. Look for them in the table, delete those that are there, and start "
                "the flow at these positions (dataflow run or the launchpad, start: offsets), or "
                "dataflow reset"
            )


def check_adopted(state: ClickhouseState, target: Target) -> None:
    """Raises PermanentError where an INSERT is not known to be in the table's rows."""
    for partition, border in state.pending.items():
        what, _, at = _chunk(state, partition, border)
        raise PermanentError(
            f"flow {target.flow}: the table cannot be adopted: nobody knows whether it holds "
            f"{what} of partition {partition} of {target.source}, since a run was stopped at them "
            f"at {at}, before the table was rebuilt. Look for them in the table, delete those that "
            "are there, and start the flow at these positions (dataflow run or the launchpad, "
            "start: offsets), or begin again with table: truncate"
        )


def _uncertain(state: ClickhouseState) -> dict[str, tuple[str, int, datetime]]:
    found = {name: _chunk(state, name, border) for name, border in state.pending.items()}
    intent = state.head.intent
    for part in state.parts if intent else ():
        if intent and not part.empty:
            found[part.partition] = ("the rows", intent.blocks, intent.at)
    return found


def _chunk(state: ClickhouseState, name: str, border: Border) -> tuple[str, int, datetime]:
    position = state.partitions[name].position
    last = int(border.upto) - 1 if isinstance(border.upto, int) else border.upto
    return f"the records {position} to {last}", border.blocks, border.at
