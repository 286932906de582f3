"""The end of a polled relation: the last pair of change and order that may be read now."""

from __future__ import annotations

from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.connectors.postgresql.source.predicates import compared, literal
from dataflow_assets.connectors.postgresql.source.relation import Relation, SourceColumn, quoted
from dataflow_assets.connectors.postgresql.source.upper_bound import Reach, reach
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.polling import NOTHING, Pair

_WITH_NAN = {"numeric", "float4", "float8"}


def newest(link: Link, relation: Relation, overlap: int = 0) -> Pair:
    """The last pair (change, order) there is now, none of a tick that is not over.

    `overlap`: seconds of which rows are read again; a tick that is not longer need not be over.

    Raises PermanentError where that is NaN: the server puts it behind every number, so that no
    later row would ever be read.
    """
    change, order = _newest(link, relation, overlap)
    column = relation.tracked
    value = change if relation.changes else order
    if value == "NaN" and column is not None and column.type.base in _WITH_NAN:
        raise PermanentError(
            f"column {column.name} of {relation.base} holds NaN, behind which no number comes: "
            f"give these rows a number, or leave them out by a query (WHERE {column.name} <> 'NaN')"
        )
    return change, order


def _newest(link: Link, relation: Relation, overlap: int) -> Pair:
    until = reach(link, relation, overlap)
    if not relation.changes:
        assert relation.order is not None  # noqa: S101 - else nothing orders the rows
        return None, _last(link, relation, until.condition(relation.order))
    changes = [change for change in _newest_changes(link, relation, until) if change is not None]
    if not changes:
        return NOTHING
    change = changes[0] if len(changes) == 1 else _greatest(link, relation, changes)
    first, *others = relation.changes
    where = f"{quoted(first)} = {literal(change, first)}"
    for other in others:
        same = f"{quoted(other)} = {literal(change, other)}"
        where = f"{where} OR ({quoted(first)} IS NULL AND {same})"
    return change, _last(link, relation, where)


def _newest_changes(link: Link, relation: Relation, until: Reach) -> list[str | None]:
    """The last value of each change column; of the second one where the first is null."""
    first, *others = relation.changes
    found = [_max(link, relation, until, first, "")]
    missing = f" AND {quoted(first)} IS NULL"
    return found + [_max(link, relation, until, other, missing) for other in others]


def _max(
    link: Link, relation: Relation, until: Reach, column: SourceColumn, more: str
) -> str | None:
    name = quoted(column)
    where = f"{until.condition(column)}{more}"
    query = (
        f"SELECT {name}::text AS {relation.alias} FROM {relation.base} WHERE {where} "  # noqa: S608
        f"ORDER BY {name} DESC LIMIT 1"
    )
    found = link.execute(query)
    return found[0][0] if found else None


def _greatest(link: Link, relation: Relation, changes: list[str]) -> str:
    both = ", ".join(compared(relation, relation.changes[0], *changes))
    found: str = link.execute(f"SELECT greatest({both})::text")[0][0]
    return found


def _last(link: Link, relation: Relation, where: str) -> str | None:
    """The highest order value of the rows; None where they have none."""
    order = quoted(relation.order) if relation.order else ""
    query = (
        f"SELECT {order}::text AS {relation.alias} FROM {relation.base} "  # noqa: S608
        f"WHERE ({where}) AND {order} IS NOT NULL ORDER BY {order} DESC LIMIT 1"
    )
    found = link.execute(query)
    return found[0][0] if found else None
