"""Before a micro-batch is read: each branch records it, or says what it has not finished yet."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from dataflow_assets.contracts import Cut, Limit, PartSlice, SourceSession, Span
from dataflow_assets.contracts.capabilities import RenewsParts, ReplansParts
from dataflow_assets.errors import Outdated, blame
from dataflow_assets.runs.branch_turns import OpenBranch

log = logging.getLogger(__name__)


def begin(
    span: Span, ready: Sequence[OpenBranch], source: SourceSession, limit: Limit
) -> tuple[Span, Sequence[OpenBranch]]:
    """Decides what is read now, and by whom: a branch with an unfinished span goes alone.

    Called by the loop on the driver, once for each micro-batch. The parts of an unfinished span may
    be larger than the limits are by now: what failed for its size is read in smaller parts.

    Args:
        span: what was planned.
        ready: the branches whose turn it is.
        source: cuts the parts that a branch has not finished.
        limit: the most that one of these may hold by now.

    Returns:
        The span to read, with the moment it was begun at, and its branches; none where there is
        nothing to read.
    """
    for opened in ready:
        with blame(opened.branch.id):
            own = opened.session.begin(span)
        if own.slices != span.slices:
            again = _in_smaller_parts(opened, own, source, limit)
            return again, [opened] if again.slices else []
        span = own
    return span, ready


def _in_smaller_parts(opened: OpenBranch, span: Span, source: SourceSession, limit: Limit) -> Span:
    """Cut before the branch is asked: an error in there is the source's and not the branch's.

    A span that cannot be read any more, or that nothing is left of, is dropped, if nothing of it is
    committed: an empty one is returned, and the next turn plans again.
    """
    left = [piece for piece in span.slices if isinstance(piece, PartSlice) and not piece.empty]
    started = len(left) < len(span.slices)
    try:
        cut, why = _cut(left, source, limit, upserts=opened.branch.sink.traits.upserts), ""
    except Outdated as error:
        if started:
            with blame(opened.branch.id):
                raise
        cut, why = Cut(dict.fromkeys(left, ())), str(error)
    if left and not started and not any(cut(part) for part in left):
        why = why or f"what {left[0].partition} and the others read is gone"
        log.warning("%s; nothing of it is stored, and it is planned again", why)
    with blame(opened.branch.id):
        return opened.session.divide(span, cut)


def _cut(left: Sequence[PartSlice], source: SourceSession, limit: Limit, *, upserts: bool) -> Cut:
    borders, gone = dict[PartSlice, Sequence[str]](), set[PartSlice]()
    if not isinstance(source, ReplansParts):
        return Cut(borders)
    renews = source if isinstance(source, RenewsParts) else None
    for part in left:
        try:
            borders[part] = source.smaller(part, limit)
        except Outdated:
            if renews is None or not upserts:
                raise
            borders[part] = renews.renew(part, limit)
            gone.add(part)
    return Cut(
        borders, frozenset(gone), {part: renews.upto(part) for part in left} if renews else {}
    )
