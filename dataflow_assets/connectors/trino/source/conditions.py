"""The conditions of polling: which rows lie behind one position and not behind another."""

from __future__ import annotations

from collections.abc import Iterator

from dataflow_assets.connectors.trino.source.relation import Relation, SourceColumn
from dataflow_assets.sdk.polling import NOTHING, Pair, Rows


def conditions(relation: Relation, rows: Rows) -> str:
    """What stands behind WHERE for these rows."""
    return " AND ".join(f"({part})" for part in _parts(relation, rows) if part) or "true"


def compared(column: SourceColumn, left: str | None, right: str | None) -> tuple[str, str]:
    """The SQL of `less` and of `same` for two values of a column."""
    if left is None or right is None:
        return _truth(left is None and right is not None), _truth(left == right)
    one, two = column.value(left), column.value(right)
    return f"{one} < {two}", f"{one} = {two}"


def _truth(found: bool) -> str:
    return "true" if found else "false"


def _parts(relation: Relation, rows: Rows) -> Iterator[str]:
    assert relation.order is not None  # noqa: S101 - else nothing orders the rows
    yield _upto(relation, relation.order, rows)
    if rows.load:
        yield _range(relation.order, rows)
    elif rows.after != NOTHING:
        yield _after(relation.change, relation.order, rows.after)
    else:
        first = relation.change or relation.order
        yield f"{first.quoted} IS NOT NULL"


def _after(change: SourceColumn | None, order: SourceColumn, pair: Pair) -> str:
    """All rows behind a pair. The plain comparison before the other one is for files to skip."""
    latest, last = pair
    if change is None or latest is None:
        assert last is not None  # noqa: S101 - pairs are complete where they are compared
        return f"{order.quoted} > {order.value(last)}"
    name, value = change.quoted, change.value(latest)
    if last is None:
        return f"{name} > {value}"
    return f"{name} >= {value} AND ({name} > {value} OR {order.quoted} > {order.value(last)})"


def _upto(relation: Relation, order: SourceColumn, rows: Rows) -> str:
    latest, last = rows.upto
    change = relation.change
    if change is None:
        unordered = f"{order.quoted} IS NULL"
        if last is None:
            return unordered
        found = f"{order.quoted} <= {order.value(last)}"
        return f"{found} OR {unordered}" if rows.load and rows.low is None else found
    name = change.quoted
    if latest is None:
        return f"{name} IS NULL"
    value = change.value(latest)
    found = f"{name} <= {value}"
    if last is not None:
        behind = f"{order.quoted} <= {order.value(last)} OR {order.quoted} IS NULL"
        found += f" AND ({name} < {value} OR {behind})"
    return f"({found}) OR {name} IS NULL" if rows.load else found


def _range(order: SourceColumn, rows: Rows) -> str:
    """The first range has the rows without an order value too, an only one has all."""
    parts = []
    if rows.low is not None:
        parts.append(f"{order.quoted} > {order.value(rows.low)}")
    if rows.high is not None:
        parts.append(f"{order.quoted} <= {order.value(rows.high)}")
    found = " AND ".join(parts)
    return f"({found}) OR {order.quoted} IS NULL" if parts and rows.low is None else found
