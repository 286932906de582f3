"""Positions against the table and against one another; every comparison is the server's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from dataflow_assets.connectors.postgresql import ranges
from dataflow_assets.connectors.postgresql.incremental import (
    Conditions,
    change_of,
    clock,
)
from dataflow_assets.connectors.postgresql.link import Link
from dataflow_assets.connectors.postgresql.relation import TIMES, Relation
from dataflow_assets.connectors.postgresql.values import Values, ask
from dataflow_assets.errors import PermanentError
from dataflow_assets.polling import NOTHING, START, Pair, Position, Rows, moment

if TYPE_CHECKING:
    from dataflow_assets.connectors.postgresql.source import PostgresqlSource

_LEAST = {"timestamp": timedelta(microseconds=1), "date": timedelta(days=1)}


def now(link: Link) -> str:
    """The database's clock, as of this transaction."""
    return str(link.execute("SELECT now()::text")[0][0])


def end(link: Link, relation: Relation) -> Position:
    """The position of one who has read everything there is."""
    if relation.wholly:
        return Position("query", read_at=now(link))
    change, order = ranges.newest(link, relation)
    if (change, order) == NOTHING and not ranges.has_rows(link, relation):
        return START
    return Position("rows", change, order, read_at=now(link))


def since(link: Link, relation: Relation, where: str, last: Position) -> Position:
    """The position right before a point in time, the last one at most."""
    kinds = {column.type.base for column in relation.changes}
    if not kinds or not kinds <= {*TIMES, "date"}:
        raise PermanentError(
            f"cannot begin at {where!r}: no column of this source tells the time of a change; "
            "allowed: earliest, latest"
        )
    if last.at_start:
        return last
    least = _LEAST["date" if "date" in kinds else "timestamp"]
    change = (datetime.fromisoformat(moment(where)) - least).isoformat(" ")
    found = Position("rows", change, read_at=last.read_at)
    return last if is_before(link, relation, last.bound, found.bound) else found


def is_behind(
    link: Link, source: PostgresqlSource, relation: Relation, one: Position, other: Position
) -> bool:
    """True while `one` has not got everything that `other` has.

    A first load is behind whatever is not one. Rows that overlap are due once more when no late
    one can come any more.
    """
    if relation.wholly:
        return _seconds(one.read_at, other.read_at) >= max(source.poll_interval, 1e-6)
    if one.at_start or other.state != "load":
        if one.state == "load":
            return True
        due = _late_until(source, one)
        return is_before(link, relation, one.bound, other.bound) or bool(
            due and _seconds(one.read_at, due) > 0 and _seconds(due, other.read_at) >= 0
        )
    if one.state != "load":
        return False
    if one.bound != other.bound:
        return is_before(link, relation, one.bound, other.bound)
    return is_before(link, replace(relation, changes=()), (None, one.key), (None, other.key))


def taken_over(relation: Relation, found: Position) -> Position:
    """A checkpoint of the DataFlow Operator as a position in this relation.

    An order value alone, where changes are tracked, is how far a first load has come: the rows
    behind it are read up to the end there is now, and changes from there on.
    """
    if relation.wholly:
        raise PermanentError("a query without changeTrackingColumn has no checkpoint to take over")
    if not relation.changes:
        if found.order is None:
            raise PermanentError(
                "the checkpoint has no lastReadOrderByValue, and this source is read by its "
                "orderByColumn alone"
            )
        return Position("rows", None, found.order)
    return found if found.change is not None else Position("load", key=found.order)


def lag(
    link: Link, relation: Relation, position: Position, last: Position, most: int
) -> tuple[int, float]:
    """Rows behind (an estimate beyond `most`), and the age of the oldest one by its own clock."""
    if relation.wholly:
        return 0, max(0.0, _seconds(position.read_at, last.read_at))
    if last.at_start:
        return 0, 0.0
    rows = Rows(position.bound, last.bound)
    if position.state == "load":
        bound = position.bound if position.begun else last.bound
        rows = Rows(upto=bound, load=True, low=position.key)
    elif not is_before(link, relation, position.bound, last.bound):
        return 0, 0.0
    records = ranges.count(link, relation, rows, most)
    if not records:
        return 0, 0.0
    if position.begun:
        return records, max(0.0, _seconds(position.read_at, last.read_at))
    return records, _age(link, relation, rows, _seconds(position.read_at, last.read_at))


def late_from(source: PostgresqlSource, position: Position) -> str | None:
    """From where rows are read again; None where no late one can have come."""
    due = _late_until(source, position)
    if not due or position.read_at is None or _seconds(position.read_at, due) <= 0:
        return None
    early = datetime.fromisoformat(position.read_at) - timedelta(seconds=source.overlap_seconds)
    return early.isoformat(" ")


def _late_until(source: PostgresqlSource, position: Position) -> str | None:
    """When no row can come late any more whose change value was passed already."""
    if not source.overlap_seconds or position.change is None:
        return None
    try:
        change = datetime.fromisoformat(position.change)
    except ValueError:
        raise PermanentError(
            "overlapSeconds needs a changeTrackingColumn that holds times"
        ) from None
    return (change + timedelta(seconds=source.overlap_seconds)).isoformat(" ")


def _age(link: Link, relation: Relation, rows: Rows, otherwise: float) -> float:
    """Seconds since the oldest of the rows was changed."""
    change = relation.tracked
    if change is None or not clock(change):
        return max(0.0, otherwise)
    values = Values()
    where, value = Conditions(relation, values).of(rows), change_of(relation)
    query = (
        f"SELECT extract(epoch FROM {clock(change)}::timestamp - {value}::timestamp)::float8 "  # noqa: S608
        f"FROM {relation.base} WHERE ({where}) AND {value} IS NOT NULL ORDER BY {value} LIMIT 1"
    )
    found = ask(link, query, values)
    return max(0.0, float(found[0][0])) if found else 0.0


def is_before(link: Link, relation: Relation, one: Pair, other: Pair) -> bool:
    """Whether a pair comes before another; a missing value comes before every other."""
    if one == other:
        return False
    values, sql = Values(), ""
    columns = [*relation.changes[:1], *([relation.order] if relation.order else [])]
    pairs = [*zip(one, other, strict=True)][-len(columns) :]
    for column, (left, right) in reversed([*zip(columns, pairs, strict=True)]):
        if left is None or right is None:
            less, same = f"{left is None and right is not None}", f"{left == right}"
        else:
            kind = column.type.declared
            both = values.of(left, kind), values.of(right, kind)
            less, same = " < ".join(both), " = ".join(both)
        sql = f"({less}) OR ({same}) AND ({sql})" if sql else f"{less}"
    return bool(ask(link, f"SELECT {sql}", values)[0][0])


def _seconds(since: str | None, until: str | None) -> float:
    """Between two times of one clock; for ever where the first is unknown."""
    if since is None or until is None:
        return float("inf")
    one, other = datetime.fromisoformat(since), datetime.fromisoformat(until)
    if (one.tzinfo is None) != (other.tzinfo is None):
        one, other = one.replace(tzinfo=None), other.replace(tzinfo=None)
    return (other - one).total_seconds()
