"""Positions in a polled table: ends, points in time, older checkpoints, and how far behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.polling.overlap import is_due, seconds
from dataflow_assets.sdk.sql_table import PolledSqlTable
from dataflow_assets.sdk.sql_table.positions import NOTHING, START, PolledPosition, Rows


def end(polled: PolledSqlTable[Any]) -> PolledPosition:
    """The position of one who has read everything there is.

    Called on the driver for each micro-batch that has no fixed end, and for lag by sensors.

    Args:
        polled: the table as its server describes it now.

    Returns:
        `START` for an empty table.

    Raises:
        TransientError: the server cannot be reached.
    """
    read_at = polled.now()
    if polled.wholly:
        return PolledPosition("query", read_at=read_at)
    change, order = polled.newest()
    if (change, order) == NOTHING and not polled.has_rows():
        return START
    return PolledPosition("rows", change, order, read_at=read_at, by=polled.order_kinds)


def since(polled: PolledSqlTable[Any], where: str, last: PolledPosition) -> PolledPosition:
    """The position right before a point in time, the last one at most.

    Called on the driver once, when a run begins at a time.

    Args:
        polled: the table as its server describes it now.
        where: ISO 8601.
        last: the position of the end there is now.

    Raises:
        PermanentError: no column holds the time of a change.
    """
    change = polled.before(where)
    if change is None:
        raise PermanentError(
            f"cannot begin at {where!r}: no column of this source holds the time of a change; "
            "allowed: earliest, latest"
        )
    if last.at_start:
        return last
    found = PolledPosition("rows", change, read_at=last.read_at, by=polled.order_kinds)
    return last if polled.is_before(last.bound, found.bound) else found


def from_operator(polled: PolledSqlTable[Any], found: PolledPosition) -> PolledPosition:
    """A checkpoint of the DataFlow Operator as a position in this table.

    An order value alone, where changes are tracked, is how far a first load has come: the rows
    behind it are read up to the end there is now, and changes from there on. Called on the driver
    once, when a flow goes on from such a checkpoint.

    Args:
        polled: the table as its server describes it now.
        found: the checkpoint's change value and order value.

    Raises:
        PermanentError: the checkpoint is not of the way in which this source is read.
    """
    if polled.wholly:
        raise PermanentError("a query without changeTrackingColumn has no checkpoint to take over")
    if not polled.tracks:
        if found.order is None:
            raise PermanentError(
                "the checkpoint has no lastReadOrderByValue, and this source is read by its "
                "orderByColumn alone"
            )
        return PolledPosition("rows", None, found.order)
    if found.change is None:
        return PolledPosition("load", key=found.order)
    return PolledPosition("rows", polled.at(found.change), found.order)


def lags(
    polled: PolledSqlTable[Any],
    one: PolledPosition,
    other: PolledPosition,
    *,
    interval: float,
    overlap: int,
) -> bool:
    """True while `one` has not got everything that `other` has.

    A first load is behind whatever is not one; a query without order is due again after `interval`
    seconds, rows that overlap once more when no late one can come any more.

    Called on the driver in each turn of the loop, for each pair of branches, and by sensors.

    Args:
        polled: the table as its server describes it now.
        one: the position that may be behind.
        other: of another branch, or of the end there is now.
        interval: seconds between two reads of a query without order.
        overlap: seconds of which rows may come late.
    """
    if one == other or other.at_start:
        return False
    for position in (one, other):
        check_kinds(polled, position.by)
    if polled.wholly:
        return seconds(one.read_at, other.read_at) >= max(interval, 1e-6)
    if one.at_start or other.state != "load":
        if one.state == "load" or polled.is_before(one.bound, other.bound):
            return True
        return is_due(one, overlap, other.read_at)
    if one.state != "load":
        return False
    if one.bound != other.bound:
        return polled.is_before(one.bound, other.bound)
    return polled.is_before((one.change, one.key), (one.change, other.key))


def check_kinds(polled: PolledSqlTable[Any], by: str | None) -> None:
    """Raises PermanentError where an order is of other columns' kinds than rows are put in now.

    Called before positions are compared, and in tasks before a part is read.

    Args:
        polled: the table as its server describes it now.
        by: of a position or a part; None where nobody knows.
    """
    if by is not None and not polled.wholly and by != polled.order_kinds:
        raise PermanentError(
            f"the columns by which the rows of {polled.title} are put in order were {by} at the "
            f"checkpoint, and are {polled.order_kinds} now: which rows come after it is not known. "
            "Start from earliest (dataflow run --from earliest), or where the sink upserts at a "
            "time before the columns were altered"
        )


def lag(
    polled: PolledSqlTable[Any], position: PolledPosition, last: PolledPosition
) -> tuple[int, float]:
    """Returns how far a position is behind the end.

    Called on the driver after each micro-batch, and by sensors.

    Args:
        polled: the table as its server describes it now.
        position: where the flow is.
        last: the position of the end there is now.

    Returns:
        Rows behind, and the seconds since the oldest of them was changed, by the server's clock.
        Of a first load, and where nothing tells when rows were changed: seconds since the last
        read.
    """
    if polled.wholly:
        return 0, max(0.0, seconds(position.read_at, last.read_at))
    check_kinds(polled, position.by)
    if last.at_start:
        return 0, 0.0
    rows = Rows(position.bound, last.bound)
    if position.state == "load":
        bound = position.bound if position.begun else last.bound
        rows = Rows(upto=bound, load=True, low=position.key)
    elif not polled.is_before(position.bound, last.bound):
        return 0, 0.0
    records = polled.count(rows)
    if not records:
        return 0, 0.0
    age = None if position.begun else polled.age(rows)
    if age is None:  # nothing tells the time of a change: it came after the last read
        age = seconds(position.read_at, last.read_at) if position.read_at else 0.0
    return records, max(0.0, age)


def unread(polled: PolledSqlTable[Any], position: PolledPosition) -> Iterator[str]:
    """Returns what a person should know about rows that are never read.

    Called on the driver once for each session and state.

    Args:
        polled: the table as its server describes it now.
        position: where the flow is.

    Yields:
        Sentences for the log.
    """
    if polled.wholly or position.state == "load":
        return
    rows = polled.unordered_rows() - position.unordered
    if rows > 0:
        yield (
            f"{rows} rows that came after the first load have no {polled.first}: they have no "
            "place in the order and are not read"
        )
