"""The conditions of polling as SQL: which rows come after one position and not after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic

from dataflow_assets.sdk.sql_table.dialect import Binds, SqlDialect
from dataflow_assets.sdk.sql_table.positions import NOTHING, Pair, Rows
from dataflow_assets.sdk.sql_table.relation import C, SqlRelation


@dataclass(frozen=True)
class Conditions(Generic[C]):
    """Makes conditions for WHERE, on the driver while parts are planned, and in tasks.

    Rows are ordered by the pair (change, order), or by the order column alone. A row without an
    order value comes before all others of its change value. Of a relation that has an order.
    """

    relation: SqlRelation[C]
    dialect: SqlDialect[C]
    binds: Binds = field(default_factory=dict)
    """The parameters of the statement so far."""

    def of(self, rows: Rows) -> str:
        """Returns the SQL for these rows; `1 = 1` for all."""
        parts = [self._upto(rows)]
        if rows.load:
            parts.append(self._range(rows))
        elif rows.after != NOTHING:
            parts.append(self.first_value(lambda column: self._compare(column, ">", rows.after)))
        return " AND ".join(f"({part})" for part in parts if part) or "1 = 1"

    def before(self, one: Pair, other: Pair) -> str:
        """Returns the SQL of whether a pair comes before another; a missing value comes first.

        Equal pairs do not come before each other.
        """
        columns = [*self.relation.changes[:1], self.relation.key]
        pairs = [*zip(one, other, strict=True)][-len(columns) :]
        sql = "1 = 0"
        for column, (left, right) in reversed([*zip(columns, pairs, strict=True)]):
            if left is None or right is None:
                less, same = _truth(left is None and right is not None), _truth(left == right)
            else:
                sides = self.dialect.operands(self.relation, column, (left, right), self.binds)
                less, same = " < ".join(sides), " = ".join(sides)
            sql = f"({less}) OR ({same}) AND ({sql})"
        return sql

    def first_value(self, condition: Callable[[C], str]) -> str:
        """Returns a condition on the first change column that has a value, else on the order's."""
        first, *others = self.relation.rank_columns
        return " OR ".join(
            [condition(first), *(f"({first.sql} IS NULL AND {condition(each)})" for each in others)]
        )

    def between(self, low: str | None, high: str | None) -> str:
        """Returns the SQL for a range of the order column; empty for all of it."""
        order = self.relation.key
        ends = ((">", low), ("<=", high))
        return " AND ".join(
            f"{order.sql} {sign} {self.value(order, end)}" for sign, end in ends if end is not None
        )

    def value(self, column: C, text: str | None) -> str:
        """Returns the SQL of a value of a column's type, from the text that a position has."""
        assert text is not None  # noqa: S101 - pairs are complete where they are compared
        return self.dialect.value(column, text, self.binds)

    def _upto(self, rows: Rows) -> str:
        """A load also reads the rows that have no place in the order, in its first range."""
        ranked, tracks = self.relation.rank_columns, bool(self.relation.changes)
        unplaced = " AND ".join(f"{column.rank} IS NULL" for column in ranked)
        if rows.upto[0 if tracks else 1] is None:
            return unplaced
        found = self.first_value(lambda column: self._compare(column, "<=", rows.upto))
        unread = rows.load and (tracks or rows.low is None) and all(c.nullable for c in ranked)
        return f"({found}) OR ({unplaced})" if unread else found

    def _range(self, rows: Rows) -> str:
        """The first range has the rows without an order value too, an only one has all."""
        found, order = self.between(rows.low, rows.high), self.relation.key
        first = found and rows.low is None and order.nullable
        return f"({found}) OR {order.rank} IS NULL" if first else found

    def _compare(self, column: C, sign: str, pair: Pair) -> str:
        """The plain comparison before the other one is for indexes."""
        change, last = pair
        order = self.relation.key
        if not self.relation.changes:
            return f"{order.sql} {sign} {self.value(order, last)}"
        name, value = column.sql, self.value(column, change)
        if last is None:
            return f"{name} {sign} {value}"
        key = self.value(order, last)
        first = f"{order.rank} IS NULL" if sign == "<=" and order.nullable else ""
        if self.dialect.row_values:
            found = f"({name}, {order.sql}) {sign} ({value}, {key})"
            return f"({found} OR ({name} = {value} AND {first}))" if first else found
        strict = f"{name} {sign[0]} {value}"
        later = " OR ".join(filter(None, (strict, f"{order.sql} {sign} {key}", first)))
        return f"{name} {sign[0]}= {value} AND ({later})"


def _truth(found: bool) -> str:
    return "1 = 1" if found else "1 = 0"
