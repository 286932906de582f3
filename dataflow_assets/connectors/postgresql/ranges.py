"""Where parts end: borders are looked up in the index, a few at a time, before anything is read.

Each border lies so many rows behind the one before it; a table of any size costs a span no more
than its own rows. Rows of one order value stay together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dataflow_assets.connectors.postgresql.incremental import (
    Conditions,
    change_of,
    clock,
)
from dataflow_assets.connectors.postgresql.link import Link
from dataflow_assets.connectors.postgresql.relation import Column, Relation, quoted
from dataflow_assets.connectors.postgresql.values import Values, ask
from dataflow_assets.polling import NOTHING, Pair, Rows

PARTS = 4  # of a span: commits, reports and stops come often
RESULT = "__dataflow_result"  # without a name ORDER BY would mean it and not the column
LEAST = 20_000  # rows that are worth a part of their own


@dataclass(frozen=True)
class Cut:
    """The parts of one span, and whether more is waiting behind them."""

    parts: tuple[Rows, ...]
    full: bool


def newest(link: Link, relation: Relation) -> Pair:
    """The last pair (change, order) there is now, none beyond the database's clock."""
    if not relation.changes:
        assert relation.order is not None  # noqa: S101 - else nothing orders the rows
        return None, _last(link, relation, _until_now(relation.order))
    changes = [change for change in _newest_changes(link, relation) if change is not None]
    if not changes:
        return NOTHING
    change = changes[0] if len(changes) == 1 else _greatest(link, relation, changes)
    values = Values()
    first, *others = relation.changes
    where = f"{quoted(first)} = {values.of(change, first.type.declared)}"
    for other in others:
        same = f"{quoted(other)} = {values.of(change, other.type.declared)}"
        where = f"{where} OR ({quoted(first)} IS NULL AND {same})"
    return change, _last(link, relation, where, values)


def has_rows(link: Link, relation: Relation) -> bool:
    """Whether there is any row at all."""
    ((found,),) = link.execute(f"SELECT EXISTS (SELECT FROM {relation.base})")  # noqa: S608
    return bool(found)


def load(link: Link, relation: Relation, rows: Rows, most: int) -> Cut:
    """The first load between `rows.low` and `rows.high`, in ranges of the order column."""
    most = max(1, min(most, max(LEAST, -(-estimate(link, relation, rows) // PARTS))))
    parts: list[Rows] = []
    for _ in range(PARTS):
        high = _key(link, relation, rows, most)
        if high is None or high == rows.high:
            return Cut((*parts, rows), full=False)
        parts.append(replace(rows, high=high))
        rows = replace(rows, low=high)
    return Cut(tuple(parts), full=True)


def increments(link: Link, relation: Relation, rows: Rows, most: int) -> Cut:
    """The rows behind `rows.after`, in pieces of the order of changes."""
    parts: list[Rows] = []
    for _ in range(PARTS):
        border = _border(link, relation, rows, most)
        if border is None or border == rows.upto:
            return Cut((*parts, rows), full=False)
        parts.append(replace(rows, upto=border))
        rows = replace(rows, after=border)
    return Cut(tuple(parts), full=True)


def count(link: Link, relation: Relation, rows: Rows, most: int) -> int:
    """How many rows there are, counted up to `most`; beyond that the planner's estimate."""
    values = Values()
    where = Conditions(relation, values).of(rows)
    query = (
        f"SELECT count(*) FROM (SELECT FROM {relation.base} WHERE {where} LIMIT {most + 1}) AS n"  # noqa: S608
    )
    ((found,),) = ask(link, query, values)
    return int(found) if found <= most else max(int(found), estimate(link, relation, rows))


def estimate(link: Link, relation: Relation, rows: Rows) -> int:
    """The planner's estimate of how many rows there are."""
    values = Values()
    where = Conditions(relation, values).of(rows)
    query = f"EXPLAIN (FORMAT JSON) SELECT FROM {relation.base} WHERE {where}"
    ((plan,),) = ask(link, query, values)
    return int(plan[0]["Plan"]["Plan Rows"])


def _key(link: Link, relation: Relation, rows: Rows, most: int) -> str | None:
    """The last order value of the next `most` rows; None where there are no more than that."""
    values = Values()
    where = Conditions(relation, values).between(rows.low, rows.high)
    order = quoted(relation.order) if relation.order else ""
    query = (
        f"SELECT {order}::text AS {RESULT} FROM {relation.base} WHERE {where} "  # noqa: S608
        f"ORDER BY {order} OFFSET {most - 1} LIMIT 2"
    )
    found = ask(link, query, values)
    return str(found[0][0]) if len(found) == 2 else None


def _border(link: Link, relation: Relation, rows: Rows, most: int) -> Pair | None:
    """The last pair of the next `most` rows; None where there are no more than that."""
    values = Values()
    where = Conditions(relation, values).of(rows)
    assert relation.order is not None  # noqa: S101 - else nothing orders the rows
    change, order = change_of(relation), quoted(relation.order)
    listed = f"{change}::text" if relation.changes else "NULL"
    rank = f"{change}, {order} NULLS FIRST" if relation.changes else order
    query = (
        f"SELECT {listed} AS {RESULT}, {order}::text AS {RESULT}_2 "  # noqa: S608
        f"FROM {relation.base} WHERE {where} "
        f"ORDER BY {rank} OFFSET {most - 1} LIMIT 2"
    )
    found = ask(link, query, values)
    return (found[0][0], found[0][1]) if len(found) == 2 else None


def _newest_changes(link: Link, relation: Relation) -> list[str | None]:
    """The last value of each change column; of the second one where the first is null."""
    first, *others = relation.changes
    found = [_max(link, relation, first, "")]
    missing = f" AND {quoted(first)} IS NULL"
    return found + [_max(link, relation, other, missing) for other in others]


def _max(link: Link, relation: Relation, column: Column, more: str) -> str | None:
    name = quoted(column)
    query = (
        f"SELECT {name}::text AS {RESULT} FROM {relation.base} WHERE {_until_now(column)}{more} "  # noqa: S608
        f"ORDER BY {name} DESC LIMIT 1"
    )
    found = link.execute(query)
    return found[0][0] if found else None


def _greatest(link: Link, relation: Relation, changes: list[str]) -> str:
    values, kind = Values(), relation.changes[0].type.declared
    both = ", ".join(values.of(change, kind) for change in changes)
    found: str = ask(link, f"SELECT greatest({both})::text", values)[0][0]
    return found


def _last(link: Link, relation: Relation, where: str, values: Values | None = None) -> str | None:
    """The highest order value of the rows; None where they have none."""
    order = quoted(relation.order) if relation.order else ""
    query = (
        f"SELECT {order}::text AS {RESULT} FROM {relation.base} "  # noqa: S608
        f"WHERE ({where}) AND {order} IS NOT NULL ORDER BY {order} DESC LIMIT 1"
    )
    found = ask(link, query, values or Values())
    return found[0][0] if found else None


def _until_now(column: Column) -> str:
    now = clock(column)
    return f"{quoted(column)} <= {now}" if now else f"{quoted(column)} IS NOT NULL"
