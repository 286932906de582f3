"""The end of a polled relation: the last pair of change and order that the clock has reached."""

from __future__ import annotations

from dataflow_assets.connectors.postgresql.incremental import clock
from dataflow_assets.connectors.postgresql.link import Link
from dataflow_assets.connectors.postgresql.relation import Column, Relation, quoted
from dataflow_assets.connectors.postgresql.values import Values, ask
from dataflow_assets.polling import NOTHING, Pair

RESULT = "__dataflow_result"  # without a name ORDER BY would mean it and not the column


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
