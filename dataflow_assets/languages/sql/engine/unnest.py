"""UNNEST: a row becomes a row for each item of an array, or of a map, that it has itself.

Needs no state, so it runs in the one pass, and in front of the first stage of a query with state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.columns import FlinkColumns
from dataflow_assets.languages.sql.engine.expressions import Expression, columns, looked_at, program
from dataflow_assets.languages.sql.engine.function import NO_VALUE, Environment, Row, holds
from dataflow_assets.languages.sql.engine.types import INT, FlinkType


@dataclass(frozen=True)
class Unnest:
    """One join of a row with its own items. Made when a file is loaded, sent to the tasks.

    Its columns are inserted into the row: the item (of an array of rows its fields, of a map key
    and value), and behind it the number of the item, which begins at 1.
    """

    given: Expression
    """The array or map, over the row that goes in."""
    at: int
    """The place of its first column in the rows that come out."""
    outer: bool = False
    """LEFT JOIN: a row without items comes out once, with nulls."""
    where: Expression | None = None
    """Of the rows that go in."""
    shared: tuple[Expression, ...] = ()
    """What both expressions need, computed once for a row; each may need those before it."""

    @property
    def types(self) -> tuple[FlinkType, ...]:
        return (*item_types(self.given.type), INT)

    @property
    def number_at(self) -> int:
        """The place of the item's number in the rows that come out."""
        return self.at + len(self.types) - 1

    @property
    def places(self) -> frozenset[int]:
        """The places of its columns in the rows that come out."""
        return frozenset(range(self.at, self.at + len(self.types)))

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All that it looks at, in the order in which `over` takes others."""
        return (self.given, *(() if self.where is None else (self.where,)))

    def over(self, expressions: Iterable[Expression]) -> Self:
        taken = iter(expressions)
        inner = next(taken)
        return replace(self, given=inner, where=None if self.where is None else next(taken))

    def before(self, places: frozenset[int]) -> frozenset[int]:
        """Places of rows that come out, but for its own columns, in the row that goes in."""
        width = len(self.types)
        return frozenset(one if one < self.at else one - width for one in places - self.places)


def item_types(kind: FlinkType) -> tuple[FlinkType, ...]:
    """The types of the columns that an item of an array, or of a map, becomes."""
    if kind.kind == "MAP" or kind.items[0].kind != "ROW":
        return kind.items
    return kind.items[0].items


def item_names(kind: FlinkType) -> tuple[str, ...]:
    """The names of these columns, unless a query gives them others."""
    if kind.kind == "MAP":
        return ("KEY", "VALUE")
    return kind.items[0].names or ("item",)


def origins_of(unnests: Sequence[Unnest], places: Iterable[int]) -> frozenset[int]:
    """The places of the row that goes in, of which columns of the rows that come out are made."""
    cells = frozenset(places)
    for one in reversed(unnests):
        inner = columns(one.given, one.shared) if cells & one.places else frozenset()
        cells = one.before(cells) | inner
    return cells


def read_for(unnests: Sequence[Unnest], places: Iterable[int]) -> frozenset[int]:
    """Returns the places to read, with those that decide how many rows come out."""
    cells = frozenset(places)
    for one in reversed(unnests):
        cells = one.before(cells) | looked_at(one.expressions, one.shared)
    return cells


class FlinkUnnested:
    """A row as the rows that it becomes; compiled once for each task."""

    def __init__(self, unnests: Sequence[Unnest], environment: Environment) -> None:
        """Without any a row stays as it is."""
        self._joins = [_Join(one, environment) for one in unnests]
        self._wider = sum(len(one.types) for one in unnests)

    def __call__(self, row: Row) -> Sequence[Row]:
        """The rows, in the order of the items. Raises RejectedRecord."""
        rows: Sequence[Row] = [row]
        for join in self._joins:
            rows = [made for one in rows for made in join(one)]
        return rows

    def together(self, rows: FlinkColumns) -> tuple[FlinkColumns, Sequence[int]]:
        """Unnests many rows, and returns for each row that comes out its row of origin."""
        if not self._joins:
            return rows, range(rows.count)
        joined: list[Row] = []
        owners: list[int] = []
        for at, row in enumerate(rows.rows):
            some = self(row)
            joined += some
            owners += [at] * len(some)
        width = len(rows.values) + self._wider
        values: Sequence[Sequence[Any]] = [*zip(*joined, strict=True)] if joined else [()] * width
        return FlinkColumns(len(joined), values), owners


class _Join:
    """One of the joins."""

    def __init__(self, unnest: Unnest, environment: Environment) -> None:
        compiled = program(unnest.shared, environment)
        self._where = None if unnest.where is None else compiled(unnest.where)
        self._given = compiled(unnest.given)
        self._at, self._outer = unnest.at, unnest.outer
        self._kind = unnest.given.type
        self._nulls = [None] * len(unnest.types)

    def __call__(self, row: Row) -> Iterator[Row]:
        if self._where is not None and not holds(self._where, row, "WHERE"):
            return
        before, behind = row[: self._at], row[self._at :]
        items = self._items(row)
        there = [(number, item) for number, item in enumerate(items, 1) if item is not None]
        for number, item in there:
            yield [*before, *item, number, *behind]
        if self._outer and not there:
            yield [*before, *self._nulls, *behind]

    def _items(self, row: Row) -> Sequence[Sequence[Any] | None]:
        try:
            value = self._given(row)
        except NO_VALUE as error:
            raise RejectedRecord("step", f"UNNEST: {error}") from None
        if value is None:
            return ()
        if self._kind.kind == "MAP":
            return list(value.items())
        if self._kind.items[0].kind != "ROW":
            return [(one,) for one in value]
        rows: Sequence[Sequence[Any] | None] = value
        return rows
