"""The model of a query: columns over the rows of one table, and the stages after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.tokens import Place, Unreadable
from dataflow_assets.languages.sql.engine.expressions import (
    CastTo,
    Expression,
    FlinkColumn,
    columns,
    lasting,
)
from dataflow_assets.languages.sql.engine.stages import FlinkStage
from dataflow_assets.languages.sql.engine.types import keeps_apart
from dataflow_assets.languages.sql.engine.unnest import Unnest
from dataflow_assets.languages.sql.engine.windows import FlinkWindows
from dataflow_assets.languages.sql.reader.bind import Scope
from dataflow_assets.languages.sql.reader.ranking import limit_rankings
from dataflow_assets.languages.sql.reader.syntax import View
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared
from dataflow_assets.languages.sql.reader.windows import BOUNDS

Refused = Sequence[tuple[Place, str]]
OTHER = -1
"""In place of the place of a column: something that is computed."""


class FlinkRefusals(Exception):
    """Parts of a query that are understood, and cannot run."""

    def __init__(self, refused: Refused) -> None:
        self.found = refused
        super().__init__(refused)


@dataclass(frozen=True)
class Relation:
    """Rows: columns of them, over the rows of a table of which a condition holds."""

    table: FlinkDeclared
    columns: tuple[tuple[str, Expression], ...]
    places: tuple[Place, ...] = ()
    """Where each column is written."""
    where: Expression | None = None
    stages: tuple[FlinkStage, ...] = ()
    """What GROUP BY, DISTINCT and ROW_NUMBER() have made of the rows: columns and condition are
    over the rows of the last one."""
    windows: FlinkWindows | None = None
    """Of the rows of the table, whose columns are behind those of the table."""
    unnests: tuple[Unnest, ...] = ()
    """What makes several rows of one; their columns are behind those of the table and of its
    windows."""
    unnested: Place | None = None
    """Where the first of them is."""
    bounds: tuple[Expression, ...] = ()
    """Of a row in a window `window_start`, `window_end` and, where it is there, `window_time`."""
    united: tuple[Relation, ...] = ()
    """With UNION ALL below a stage the rows that it takes, table by table: they have these columns;
    `table` is then the first one."""
    unlimited: Place | None = None
    """Where a ROW_NUMBER() is, as long as the condition may still say how many rows it is about."""

    @property
    def tables(self) -> tuple[FlinkDeclared, ...]:
        return tuple(one.table for one in self.united) or (self.table,)

    @property
    def changes(self) -> bool:
        """Returns whether rows may go as well as come."""
        if self.stages:
            return self.stages[-1].window is None
        return self.table.changes

    @property
    def width(self) -> int:
        """Returns how many columns the rows have that the first stage sees."""
        bounds = 0 if self.windows is None else len(BOUNDS)
        return len(self.table.stored_columns) + bounds + sum(len(one.types) for one in self.unnests)

    def limit_rankings(self) -> Relation:
        """With rankings that know how many rows they are about. Raises Unreadable."""
        if self.unlimited is None:
            return self
        stages = limit_rankings(self.stages, self.where, self.unlimited)
        return replace(self, stages=stages, unlimited=None)


Rows = tuple[Relation, Scope]
"""Rows, and what names mean over them."""


@dataclass(frozen=True)
class FlinkCatalog:
    """The tables and views that can be read, by name."""

    tables: Mapping[str, FlinkDeclared]
    views: Mapping[str, tuple[View, tuple[Relation, ...]]]
    """Each with its rows, which are found out once, where the view is declared."""
    broken: frozenset[str] = frozenset()
    """Names of tables and views that have findings of their own."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """By the name of a table of another file why it cannot be used."""

    def table(self, name: str, place: Place) -> FlinkDeclared:
        declared = self.tables.get(name)
        if declared is not None:
            return declared
        if name in self.broken:
            raise Unreadable(place, f"{name} has findings of its own")
        if name in self.unusable:
            raise Unreadable(place, self.unusable[name])
        advice = suggest(name, [*self.tables, *self.views])
        raise Unreadable(
            place, f"no table {name} above, or in another file of the folder; {advice}"
        )


def column_at(expression: Expression) -> int | None:
    """Which column of a row it is; None for what all rows have, `OTHER` for anything else.

    A column that is cast without becoming equal to another value, as Flink casts by itself into a
    larger type, is that column.
    """
    if not columns(expression) and lasting(expression):
        return None
    if (
        isinstance(expression, CastTo)
        and not expression.tries
        and isinstance(expression.given, FlinkColumn)
    ):
        return expression.given.at if keeps_apart(expression.given.type, expression.type) else OTHER
    return expression.at if isinstance(expression, FlinkColumn) else OTHER
