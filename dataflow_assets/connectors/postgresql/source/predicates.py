"""The conditions of polling: which rows lie behind one position and not behind another.

Rows are ordered by the pair (change, order), or by the order column alone. Where the order column
may be null, such a row comes before all others of its change value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dataflow_assets.connectors.postgresql.source.relation import Relation, SourceColumn, quoted
from dataflow_assets.sdk.polling import NOTHING, Pair, Rows

# A time without zone is that of the server's own zone, whichever zone the session has.
NAIVE = frozenset({"timestamp", "date"})
_ZONE = "(SELECT reset_val FROM pg_settings WHERE name = 'TimeZone')"
SERVER_TIME = f"(now() AT TIME ZONE {_ZONE})"
_WITHOUT_COLLATION = frozenset(
    {"int2", "int4", "int8", "numeric", "float4", "float8", "uuid", *NAIVE, "timestamptz"}
)
_CLOCKS = {"timestamptz": "now()", "timestamp": SERVER_TIME, "date": f"{SERVER_TIME}::date"}


def server_time(moment: str) -> str:
    """The SQL of what the clock of the server's own zone shows at a moment."""
    return f"({moment} AT TIME ZONE {_ZONE})"


def literal(value: str, column: SourceColumn) -> str:
    """A value as a literal of the type that the column is compared as.

    For every query of a polled table, also COPY and EXPLAIN, which take no parameters. As text
    first, because a literal of the type `name` has a collation of its own, which conflicts with the
    column's.
    """
    as_text = "" if column.type.base in _WITHOUT_COLLATION else "::text"
    return f"{_string(value)}{as_text}::{column.compared_as}"


def _string(value: str) -> str:
    """Any text, whatever `standard_conforming_strings` is.

    psycopg's own `sql.quote` follows the last connection of the process, of whichever thread.
    """
    doubled = value.replace("'", "''")
    if "\\" not in doubled:
        return f"'{doubled}'"
    return " E'" + doubled.replace("\\", "\\\\") + "'"


class Conditions:
    """Conditions on one relation."""

    def __init__(self, relation: Relation) -> None:
        self._relation = relation

    def of(self, rows: Rows) -> str:
        parts = [self._upto(rows)]
        if rows.load:
            parts.append(self._range(rows))
        elif rows.after != NOTHING:
            parts.append(self._after(rows.after))
        return " AND ".join(f"({part})" for part in parts if part)

    def behind(self, pair: Pair) -> str:
        """What stands behind WHERE for all rows behind a pair that have a place in the order."""
        if pair == NOTHING:
            return self._any(lambda column: f"{quoted(column)} IS NOT NULL")
        return self._after(pair)

    def _after(self, pair: Pair) -> str:
        change, order = pair
        if not self._relation.changes:
            return f"{self._order} > {self._value(self._relation.order, order)}"
        return self._any(lambda column: self._compared(column, ">", change, order))

    def _upto(self, rows: Rows) -> str:
        change, order = rows.upto
        if not self._relation.changes:
            if order is None:
                return f"{self._order} IS NULL"
            found = f"{self._order} <= {self._value(self._relation.order, order)}"
            return f"{found} OR {self._order} IS NULL" if rows.load and rows.low is None else found
        unknown = " AND ".join(f"{quoted(c)} IS NULL" for c in self._relation.changes)
        if change is None:
            return unknown
        found = self._any(lambda column: self._bounded(column, change, order))
        return f"{found} OR ({unknown})" if rows.load else found

    def _bounded(self, column: SourceColumn, change: str, order: str | None) -> str:
        found = self._compared(column, "<=", change, order)
        if order is None or self._relation.order is None or self._relation.order.required:
            return found
        equal = f"{quoted(column)} = {self._value(column, change)}"
        return f"({found} OR ({equal} AND {self._order} IS NULL))"

    def _compared(
        self, column: SourceColumn, sign: str, change: str | None, order: str | None
    ) -> str:
        value = self._value(column, change)
        if order is None:
            return f"{quoted(column)} {sign} {value}"
        return (
            f"({quoted(column)}, {self._order}) {sign} "
            f"({value}, {self._value(self._relation.order, order)})"
        )

    def _any(self, condition: Callable[[SourceColumn], str]) -> str:
        """For the first change column that has a value; the order column where there is none."""
        changes: Sequence[SourceColumn] = self._relation.changes
        if not changes:
            assert self._relation.order is not None  # noqa: S101 - else nothing orders the rows
            return condition(self._relation.order)
        first, *others = changes
        if not others:
            return condition(first)
        return f"{condition(first)} OR ({quoted(first)} IS NULL AND {condition(others[0])})"

    def between(self, low: str | None, high: str | None) -> str:
        """Returns what stands behind WHERE for a range of the order column."""
        parts = [f"{self._order} IS NOT NULL"]
        if low is not None:
            parts.append(f"{self._order} > {self._value(self._relation.order, low)}")
        if high is not None:
            parts.append(f"{self._order} <= {self._value(self._relation.order, high)}")
        return " AND ".join(parts)

    def _range(self, rows: Rows) -> str:
        """The first range has the rows without an order value too, an only one has all."""
        order = self._relation.order
        if rows.low is None and rows.high is None:
            return ""
        found = self.between(rows.low, rows.high)
        nullable = order is not None and not order.required
        return f"{found} OR {self._order} IS NULL" if nullable and rows.low is None else found

    @property
    def _order(self) -> str:
        assert self._relation.order is not None  # noqa: S101 - else nothing orders the rows
        return quoted(self._relation.order)

    def _value(self, column: SourceColumn | None, value: str | None) -> str:
        assert column is not None  # noqa: S101 - else nothing orders the rows
        assert value is not None  # noqa: S101 - pairs are complete where they are compared
        return literal(value, column)


def change_of(relation: Relation) -> str:
    """The change value of a row; of one without any the order value."""
    names = ", ".join(map(quoted, relation.ranked))
    return f"COALESCE({names})" if len(relation.ranked) > 1 else names


def clock(column: SourceColumn) -> str:
    """The database's own now, as a value of the column; empty where it is no time."""
    return _CLOCKS.get(column.type.base, "")


def compared(relation: Relation, column: SourceColumn, left: str, right: str) -> tuple[str, str]:
    """Two values of a column as its rows are compared: by the column's own collation.

    Nothing else tells which one that is: of a query no catalogue knows.
    """
    one, two = (literal(value, column) for value in (left, right))
    if column.type.base in _WITHOUT_COLLATION:
        return one, two
    own = f"(SELECT {quoted(column)} FROM {relation.base} LIMIT 0)"  # noqa: S608 - quoted
    return one, f"COALESCE({own}, {two})"
