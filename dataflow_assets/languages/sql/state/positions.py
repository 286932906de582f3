"""The positions of a view that no state was computed for: where it begins, and where it ends."""

from __future__ import annotations

import time
import uuid

import msgspec

from dataflow_assets.contracts import Positions, utc_now
from dataflow_assets.languages.sql.engine.windows import millis
from dataflow_assets.languages.sql.state.manifest import VIEW, Earlier, Position, position_of

PAST = 100
"""Generations before that a position names; the files of older ones were deleted long ago."""


def first_position(offsets: Positions) -> Positions:
    """Without a state, in a generation of its own."""
    generation = f"{time.time_ns():020}-{uuid.uuid4().hex[:8]}"
    return Position(whole(offsets), generation).positions()


def rewound(chosen: Positions, before: Positions, *, stay: bool) -> Positions:
    """Returns where a view begins again.

    Args:
        chosen: without a state.
        before: where it was; those of another source name no state.
        stay: the rows of the target stay, so that those of the states before are known still.
    """
    # Parts of an unfinished span carry the state behind it: rows of it may be stored.
    texts = dict.fromkeys(before.values()) if VIEW in before else ()
    positions = [position_of(text) for text in texts]
    states = [Earlier(one.state, one.digest) for one in positions if one.state and stay]
    states += (old for one in positions if stay for old in one.earlier)
    past = [name for one in positions for name in (*one.past, one.generation)]
    position = msgspec.structs.replace(
        position_of(chosen[VIEW]),
        earlier=tuple(dict.fromkeys(states)),
        past=tuple(dict.fromkeys(past))[-PAST:],
    )
    return position.positions()


def ending(offsets: Positions) -> Positions:
    """The ends of its topics, and when they were looked at."""
    return Position(whole(offsets), "", seen=_now()).positions()


def is_due(start: Position, end: Position | None) -> bool:
    """Returns whether a window ends although no record has come."""
    seen = _now() if end is None or end.seen is None else end.seen
    return start.due is not None and start.due <= seen


def whole(offsets: Positions) -> dict[str, int]:
    return {partition: int(at) for partition, at in offsets.items()}


def _now() -> int:
    return millis(utc_now())
