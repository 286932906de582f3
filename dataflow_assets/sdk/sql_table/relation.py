"""A relation that is polled: a table or a query, its columns, and what puts its rows in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from dataflow_assets.contracts import Kind, kind_of, metadata_column
from dataflow_assets.sdk.free_names import free_stem


class SqlColumn(ABC):
    """A column of a relation that is polled, as its server describes it now.

    A connector makes them on the driver for each question of the engine, and once in each task.
    """

    name: str

    @property
    @abstractmethod
    def sql(self) -> str:
        """Returns the column's name as SQL takes it."""

    @property
    @abstractmethod
    def type_name(self) -> str:
        """Returns the type as the database writes it, for people."""

    @property
    @abstractmethod
    def selection(self) -> str:
        """Returns the SQL of its values as a task reads them."""

    @abstractmethod
    def field(self, name: str) -> pa.Field:
        """Returns the field of such values in Arrow, under a name."""

    @property
    def rank(self) -> str:
        """Returns the SQL of its value, null where that has no place in the order, as a NaN."""
        return self.sql

    @property
    @abstractmethod
    def nullable(self) -> bool:
        """Returns whether a row may have no place in the order."""

    @property
    @abstractmethod
    def digits(self) -> int | None:
        """Returns how many digits of a second it keeps; None where it holds no point in time."""

    @property
    @abstractmethod
    def is_day(self) -> bool:
        """Returns whether it holds whole days."""

    @property
    @abstractmethod
    def is_zoned(self) -> bool:
        """Returns whether it holds points in time, and not what the clock of some zone shows."""

    @property
    def order_kind(self) -> str:
        """Returns how its values are put in order: of another kind they are put in another one."""
        if self.digits is not None:
            return "days" if self.is_day else "times with a zone" if self.is_zoned else "times"
        field = self.field("value")
        kind, arrow = kind_of(field), field.type
        numbers = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_floating)
        if kind == Kind.NUMERIC or any(is_number(arrow) for is_number in numbers):
            return "numbers"
        bare = self.type_name.partition("(")[0]  # members and lengths come and go
        return f"values like {bare}" if kind == Kind.TEXT else kind or str(arrow)

    @abstractmethod
    def text(self, expression: str) -> str:
        """Returns the SQL of a value of this column as it stands in a position."""


C = TypeVar("C", bound=SqlColumn)


@dataclass(frozen=True)
class SqlRelation(Generic[C]):
    """A table or query: `base` stands after FROM. Without `order` nothing orders the rows."""

    base: str
    columns: tuple[C, ...]
    order: C | None = None
    changes: tuple[C, ...] = ()
    """The change column, and the one that counts where it is null; none: the order alone tells."""
    identity: str | None = None
    """Of the table itself; None for a query."""

    @property
    def key(self) -> C:
        """Returns the order column of a relation whose rows have an order."""
        assert self.order is not None  # noqa: S101 - else nothing orders the rows
        return self.order

    @property
    def rank_columns(self) -> tuple[C, ...]:
        """Returns the columns of which one must have a value for a row to have a place."""
        return self.changes or ((self.order,) if self.order else ())

    @property
    def rank(self) -> str:
        """Returns the SQL of a row's place: its change value, else its order value."""
        names = ", ".join(column.sql for column in self.rank_columns)
        return f"COALESCE({names})" if len(self.rank_columns) > 1 else names

    @property
    def first(self) -> C | None:
        """Returns the first column of the order of changes."""
        return self.rank_columns[0] if self.rank_columns else None

    @property
    def alias(self) -> str:
        """Returns the beginning of aliases: a column's name would stand for it in conditions."""
        named = [*self.columns, *self.changes, *filter(None, [self.order])]
        return free_stem((column.name for column in named), "#")


@dataclass(frozen=True)
class Selection:
    """One column of an answer: its SQL, its field, and the column whose type its values have."""

    sql: str
    field: pa.Field
    column: Any


def metadata_selection(name: str, sql: str, column: SqlColumn) -> Selection:
    """Returns a column of metadata, whose values have the type of a column.

    Called in tasks by `PolledSource.metadata_selections`, once for each part.
    """
    field = column.field(name)
    return Selection(sql, metadata_column(name, field.type, field.metadata), column)
