"""The end of a run that does not stay on: the end that was visible at its start, or a time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from dataflow_assets.contracts import Positions, SourceSession
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.flow import Flow


def visible(flow: Flow, source: SourceSession, until: str | None) -> Positions:
    """The end of the source right now, or where it came to at a time.

    Called by the loop on the driver, once for each run and topic: the end that the first attempt
    saw is that of all.

    Args:
        flow: with its secrets in place.
        source: its open session.
        until: a time in ISO 8601; None for all that there is.

    Raises:
        PermanentError: `until` is no time, or the source knows none.
    """
    positions = _before(flow, source, until) if until else None
    return positions or source.end()


def check_reached(
    flow: Flow, source: SourceSession, until: Positions, branches: Iterable[Positions]
) -> None:
    """Nothing more to read is not yet the end: a broker may show less for a while.

    Called by the loop on the driver when it has found nothing more up to `until`; `branches` are
    the positions of each.

    Raises:
        TransientError: a branch has not come to `until`.
    """
    for positions in branches:
        if any(source.lags(p, positions.get(p), end) for p, end in until.items()):
            raise shows_less(flow, until, positions)


def shows_less(flow: Flow, until: Positions, positions: Positions) -> TransientError:
    """For the loop to raise: the source cannot be read as far as it could when the run began."""
    return TransientError(
        f"{flow.source_address} shows less than when the run began: its end was {dict(until)}, "
        f"and {dict(positions)} is as far as it can be read"
    )


def _before(flow: Flow, source: SourceSession, until: str) -> Positions:
    """Returns where each partition has its first record of this time or later, else its end.

    So that a run that starts at the same time continues there. Raises PermanentError for what is
    no time, and for a source that knows none.
    """
    if not _is_time(until):
        raise PermanentError(
            f"flow {flow.id}: until {until!r} is not a time; expected ISO 8601, such as "
            f"2026-01-31T00:00:00Z (seconds bounds how long a run stays on)"
        )
    if flow.source.delivers != "messages":
        raise PermanentError(
            f"flow {flow.id}: until cannot be used with {flow.source_address}: it is read as it "
            f"is, and its rows have no time of arrival"
        )
    return source.start(until)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
