"""Rows that are committed late: a few seconds are read again, until none of them can come any more.

A row may become visible after a later one was read. It has the time of its change, so it is found
by reading again what is younger than the overlap; the sink must upsert.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.sql_table.positions import PolledPosition

_ANCIENT = re.compile(r"-infinity|\d+-\d\d-\d\d.* BC|(-\d+|0+)-\d\d-\d\d.*")


def late_from(position: PolledPosition, overlap: int) -> str | None:
    """From where rows are read again; None where no late one can have come.

    Not while a sweep is under way: it would start over with each of its spans. Called on the driver
    for each micro-batch.

    Args:
        position: where the flow is.
        overlap: seconds of which rows may come late; 0 for none.

    Returns:
        A change value, as ISO 8601 text.

    Raises:
        PermanentError: the change column holds no times.
    """
    due = _late_until(position, overlap)
    if not due or position.sweeping or position.read_at is None:
        return None
    if seconds(position.read_at, due) <= 0:
        return None
    early = datetime.fromisoformat(position.read_at) - timedelta(seconds=overlap)
    return early.isoformat(" ")


def is_due(position: PolledPosition, overlap: int, now: str | None) -> bool:
    """True once no late row can come any more, where the last ones have not been looked for.

    Called on the driver in each turn of the loop, and by sensors.

    Args:
        position: where the flow is.
        overlap: seconds of which rows may come late; 0 for none.
        now: the server's clock, as ISO 8601 text; None where nobody has asked for it.

    Raises:
        PermanentError: the change column holds no times.
    """
    due = _late_until(position, overlap)
    if due is None or position.read_at is None:
        return False
    return seconds(position.read_at, due) > 0 and seconds(due, now) >= 0


def seconds(since: str | None, until: str | None) -> float:
    """Between two times of one clock.

    Called on the driver whenever positions are compared.

    Args:
        since: ISO 8601 text, with or without a zone.
        until: the same.

    Returns:
        Seconds, below 0 where `until` is earlier; infinity where one of them is None.
    """
    if since is None or until is None:
        return float("inf")
    one, other = datetime.fromisoformat(since), datetime.fromisoformat(until)
    if (one.tzinfo is None) != (other.tzinfo is None):
        one, other = one.replace(tzinfo=None), other.replace(tzinfo=None)
    return (other - one).total_seconds()


def _late_until(position: PolledPosition, overlap: int) -> str | None:
    """When no row can come late any more whose change value was passed already.

    None where that was long ago: only times before now are read, so one that Python does not know
    is infinitely early, or of a year before Christ.
    """
    if not overlap or position.change is None or _ANCIENT.fullmatch(position.change):
        return None
    try:
        change = datetime.fromisoformat(position.change)
    except ValueError:
        raise PermanentError(
            "overlapSeconds needs a changeTrackingColumn that holds times"
        ) from None
    return (change + timedelta(seconds=overlap)).isoformat(" ")
