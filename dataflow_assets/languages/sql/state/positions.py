"""The positions of a view: its start, its end, and the partitions that a span waits for."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable

import msgspec

from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession
from dataflow_assets.contracts import Positions, utc_now
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.engine.windows import millis
from dataflow_assets.languages.sql.state.manifest import VIEW, Earlier, Position, position_of
from dataflow_assets.languages.sql.state.united import UnitedSession

Messages = KafkaSourceSession | UnitedSession

PAST = 100
"""Generations before that a position names; the files of older ones were deleted long ago."""

MOST = 250_000
"""Messages of one slice: what they come to is held by one task."""
ITEMS = 10
"""About as many rows UNNEST is expected to make of a message."""


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


def most_records(view: ViewPlan) -> int:
    """Messages of one slice, of which each is kept once for each window, and each item."""
    windows = 1 if view.windows is None else view.windows.most
    rows: int = max(windows * ITEMS ** len(table.unnests) for table in view.tables)
    return max(1, MOST // rows)


def rebuild_ends(messages: Messages, start: Position, end: Position | None) -> dict[str, int]:
    """While a state is built again: the ends of its topics when that began, or of the run.

    What the state before had read says nothing: its topics may have been others.
    """
    if not start.earlier or start.rebuilt_at:
        return start.rebuilt_at
    return whole(messages.end() if end is None else end.offsets)


def closed_partitions(view: ViewPlan, messages: Messages, offsets: Positions) -> frozenset[str]:
    """The partitions of which nothing more is ever read: no window waits for them."""
    return frozenset() if view.windows is None else messages.closed_partitions(offsets)


def waiting_partitions(view: ViewPlan, messages: Messages, upto: Positions) -> Iterable[str]:
    """The partitions that have messages after a span: they are not idle."""
    if not view.idle:
        return ()
    ends = messages.end()
    return [name for name, end in ends.items() if messages.lags(name, upto.get(name), end)]


def whole(offsets: Positions) -> dict[str, int]:
    return {partition: int(at) for partition, at in offsets.items()}


def _now() -> int:
    return millis(utc_now())
