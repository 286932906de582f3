"""The SQL of polling, as each database writes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic

from dataflow_assets.sdk.sql_table.relation import C, SqlRelation

Binds = dict[str, Any]
"""The parameters of one statement, by name; empty where values are literals."""
Ask = Callable[[str, Binds], Sequence[Sequence[Any]]]
"""Runs one statement, and returns all rows of its small answer."""


class SqlDialect(ABC, Generic[C]):
    """The SQL of one database; `PolledSqlTable` and `Conditions` call it.

    On the driver while parts are planned, and in tasks. No method asks the server.
    """

    row_values: ClassVar[bool] = False
    """Whether the server looks up in an index what `(a, b) > (x, y)` says."""
    utc: ClassVar[str] = ""
    """What stands behind a point in time in a position."""
    highest: ClassVar[str] = "max"
    """The aggregate that returns the highest value, null where there is none."""
    precise: ClassVar[str]
    """What to do where a change column holds whole days or minutes, for people."""

    @abstractmethod
    def quote(self, name: str) -> str:
        """Returns an identifier as SQL takes it."""

    @abstractmethod
    def value(self, column: C, text: str, binds: Binds) -> str:
        """Returns the SQL of a value of a column's type.

        Args:
            column: of which the value is.
            text: the value as a position has it.
            binds: gets the value where it is bound.
        """

    def operands(
        self,
        relation: SqlRelation[C],  # noqa: ARG002 - what others need
        column: C,
        pair: tuple[str, str],
        binds: Binds,
    ) -> tuple[str, str]:
        """Returns the SQL of two values as the column's rows are compared, by its collation."""
        return self.value(column, pair[0], binds), self.value(column, pair[1], binds)

    @abstractmethod
    def now(self, relation: SqlRelation[C]) -> str:
        """Returns a SELECT of the server's clock, as ISO 8601 text."""

    @abstractmethod
    def clock(self, column: C) -> str:
        """Returns the SQL of the server's clock in a column's type; of days the one that runs."""

    @abstractmethod
    def sample(self, relation: SqlRelation[C], column: C, widths: Sequence[int], where: str) -> str:
        """Returns a SELECT of the latest values of a column that the clock has passed.

        Args:
            relation: what is read.
            column: holds points in time that are shorter than a day.
            widths: nanoseconds.
            where: what else holds for the rows; empty for nothing.

        Returns:
            Of one row: the server's clock and the latest value in nanoseconds, the number of
            values, `ticks.RECENT` of `ticks.RECENT_DAYS` at most, and how many of them are
            multiples of each width.
        """

    @abstractmethod
    def age(self, column: C, value: str) -> str:
        """Returns the SQL of the seconds since the least of values, null where there are none.

        Args:
            column: holds points in time.
            value: the SQL of a row's value.
        """

    @abstractmethod
    def width(self, columns: Sequence[C]) -> str:
        """Returns the SQL of how many bytes the values of a row have, about."""

    @abstractmethod
    def nth(self, relation: SqlRelation[C], columns: Sequence[C], where: str, most: int) -> str:
        """Returns a SELECT of the row number `most` in the order of columns, and of the next one.

        Args:
            relation: what is read.
            columns: the order column, and the change column before it, if there is one.
            where: which rows count.
            most: of the row, from 1.

        Returns:
            Of two rows at most: the values of the columns as they stand in a position.
        """

    def last(self, relation: SqlRelation[C], column: C, where: str) -> str:
        """Returns a SELECT of the highest value of a column as it stands in a position.

        Args:
            relation: what is read.
            column: whose value.
            where: which rows count; empty for all.
        """
        condition = f" WHERE {where}" if where else ""
        # S608: names are quoted, values bound or literals
        highest = column.text(f"{self.highest}({column.rank})")
        return f"SELECT {highest} FROM {relation.base}{condition}"  # noqa: S608

    def order_by(self, relation: SqlRelation[C], columns: Sequence[C]) -> str:  # noqa: ARG002 - what others need
        """Returns what stands behind ORDER BY where a part is read; a missing value comes first."""
        return ", ".join(f"{column.rank} NULLS FIRST" for column in columns)
