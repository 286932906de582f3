"""The conditions of polling as SQL: which rows are behind one position and not behind another.

Used by the connectors whose rows have one change column and one order column; how a column and a
value are written is the connector's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from dataflow_assets.sdk.polling.positions import NOTHING, Pair, Rows


class OrderColumn(Protocol):
    """A column that orders rows."""

    @property
    def quoted(self) -> str:
        """As SQL takes it."""

    @property
    def rank(self) -> str:
        """The SQL of its value, null where that has no place in the order: NaN has none either."""

    @property
    def nullable(self) -> bool:
        """Returns whether a row may have no place in the order."""


Column = TypeVar("Column", bound=OrderColumn)


@dataclass(frozen=True)
class Conditions(Generic[Column]):
    """What is behind WHERE, made on the driver while parts are planned, and in tasks."""

    change: Column | None
    """Orders rows before `order` does; None where rows do not change."""
    order: Column
    value: Callable[[Column, str], str]
    """The SQL of a value of a column's type, from the text that a position has."""

    def of(self, rows: Rows) -> str:
        """The SQL for these rows; `1 = 1` for all."""
        return " AND ".join(f"({part})" for part in self._parts(rows) if part) or "1 = 1"

    def before(self, one: Pair, other: Pair) -> str:
        """The SQL of whether a pair comes before another; a missing value comes first.

        Equal pairs do not come before each other.
        """
        columns = [self.order] if self.change is None else [self.change, self.order]
        pairs = [*zip(one, other, strict=True)][-len(columns) :]
        sql = "1 = 0"
        for column, (left, right) in reversed([*zip(columns, pairs, strict=True)]):
            less, same = self._compared(column, left, right)
            sql = f"({less}) OR ({same}) AND ({sql})"
        return sql

    def _compared(self, column: Column, left: str | None, right: str | None) -> tuple[str, str]:
        """The SQL of `less` and of `same`."""
        if left is None or right is None:
            return _truth(left is None and right is not None), _truth(left == right)
        one, two = self.value(column, left), self.value(column, right)
        return f"{one} < {two}", f"{one} = {two}"

    def _parts(self, rows: Rows) -> Iterator[str]:
        yield self._upto(rows) if self.change is None else self._changed_upto(self.change, rows)
        if rows.load:
            yield self._range(rows)
        elif rows.after != NOTHING:
            yield self._after(rows.after)
        else:
            first = self.change or self.order
            yield f"{first.rank} IS NOT NULL" if first.nullable else ""

    def _after(self, pair: Pair) -> str:
        """All rows behind a pair. The plain comparison before the other one is for indexes."""
        latest, last = pair
        if self.change is None or latest is None:
            assert last is not None  # noqa: S101 - pairs are complete where they are compared
            return f"{self.order.quoted} > {self.value(self.order, last)}"
        name, value = self.change.quoted, self.value(self.change, latest)
        if last is None:
            return f"{name} > {value}"
        later = f"{self.order.quoted} > {self.value(self.order, last)}"
        return f"{name} >= {value} AND ({name} > {value} OR {later})"

    def _upto(self, rows: Rows) -> str:
        last = rows.upto[1]
        unordered = f"{self.order.rank} IS NULL"
        if last is None:
            return unordered
        found = f"{self.order.quoted} <= {self.value(self.order, last)}"
        with_them = rows.load and rows.low is None and self.order.nullable
        return f"{found} OR {unordered}" if with_them else found

    def _changed_upto(self, change: Column, rows: Rows) -> str:
        latest, last = rows.upto
        name = change.quoted
        if latest is None:
            return f"{change.rank} IS NULL"
        value = self.value(change, latest)
        found = f"{name} <= {value}"
        if last is not None:
            least = f" OR {self.order.rank} IS NULL" if self.order.nullable else ""
            behind = f"{self.order.quoted} <= {self.value(self.order, last)}"
            found += f" AND ({name} < {value} OR {behind}{least})"
        return f"({found}) OR {change.rank} IS NULL" if rows.load and change.nullable else found

    def _range(self, rows: Rows) -> str:
        """The first range has the rows without an order value too, an only one has all."""
        name, parts = self.order.quoted, []
        if rows.low is not None:
            parts.append(f"{name} > {self.value(self.order, rows.low)}")
        if rows.high is not None:
            parts.append(f"{name} <= {self.value(self.order, rows.high)}")
        found = " AND ".join(parts)
        first = parts and rows.low is None and self.order.nullable
        return f"({found}) OR {self.order.rank} IS NULL" if first else found


def _truth(found: bool) -> str:
    return "1 = 1" if found else "1 = 0"
