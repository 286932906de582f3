"""Positions in a polled table: from a point in time, from older checkpoints, and how far behind."""

from __future__ import annotations

from dataflow_assets.connectors.clickhouse import ticks
from dataflow_assets.connectors.clickhouse.polled import Table
from dataflow_assets.connectors.clickhouse.relation import Column
from dataflow_assets.errors import PermanentError
from dataflow_assets.polling import Position, Rows, seconds


def since(table: Table, where: str, last: Position) -> Position:
    """The position right before a point in time, the last one at most."""
    change = table.relation.change
    if change is None or change.digits is None:
        raise PermanentError(
            f"cannot begin at {where!r}: no column of this source tells the time of a change; "
            "allowed: earliest, latest"
        )
    if last.at_start:
        return last
    time_of = ticks.before(where, change.digits, day=change.is_day)
    found = Position("rows", time_of, read_at=last.read_at)
    return last if table.is_before(last.bound, found.bound) else found


def taken_over(table: Table, found: Position) -> Position:
    """A checkpoint of the DataFlow Operator as a position in this table.

    An order value alone, where changes are tracked, is how far a first load has come: the rows
    behind it are read up to the end there is now, and changes from there on.
    """
    if table.wholly:
        raise PermanentError("a query without changeTrackingColumn has no checkpoint to take over")
    change = table.relation.change
    if change is None:
        if found.order is None:
            raise PermanentError(
                "the checkpoint has no lastReadOrderByValue, and this source is read by its "
                "orderByColumn alone"
            )
        return Position("rows", None, found.order)
    if found.change is None:
        return Position("load", key=found.order)
    return Position("rows", _tick(change, found.change), found.order)


def _tick(change: Column, text: str) -> str:
    if change.digits is None:
        raise PermanentError(
            f"the checkpoint has a time, and changeTrackingColumn {change.name} is no time: it is "
            f"{change.type}"
        )
    return ticks.at(text, change.digits, day=change.is_day)


def lag(table: Table, position: Position, last: Position) -> tuple[int, float]:
    """Rows behind, and the age of the oldest one by its own clock."""
    if table.wholly:
        return 0, max(0.0, seconds(position.read_at, last.read_at))
    if last.at_start:
        return 0, 0.0
    if position.state == "load":
        bound = position.bound if position.begun else last.bound
        rows = Rows(upto=bound, load=True, low=position.key)
    elif table.is_before(position.bound, last.bound):
        rows = Rows(position.bound, last.bound)
    else:
        return 0, 0.0
    records = table.count(rows)
    if not records:
        return 0, 0.0
    age = table.age(rows)
    if age is None:  # nothing tells the time of a change: it came after the last read
        age = seconds(position.read_at, last.read_at) if position.read_at else 0.0
    return records, max(0.0, age)
