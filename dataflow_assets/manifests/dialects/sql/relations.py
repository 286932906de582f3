"""A SELECT over tables, views and other SELECTs -> expressions over one table's rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dataflow_assets.manifests.dialects.keys import meant
from dataflow_assets.manifests.dialects.sql.bind import Scope, bound
from dataflow_assets.manifests.dialects.sql.group_windows import over_windows
from dataflow_assets.manifests.dialects.sql.grouping import grouping, has_map, is_grouped, stage
from dataflow_assets.manifests.dialects.sql.options import UPSERT
from dataflow_assets.manifests.dialects.sql.ranking import (
    NUMBER,
    Numbering,
    limited,
    numbered,
    numbering,
    ranking,
)
from dataflow_assets.manifests.dialects.sql.syntax import (
    Name,
    Node,
    Numbered,
    Reference,
    Select,
    Selected,
    Star,
    View,
    Windowed,
)
from dataflow_assets.manifests.dialects.sql.tables import Declared
from dataflow_assets.manifests.dialects.sql.tokens import Place, Unreadable
from dataflow_assets.manifests.dialects.sql.windows import closing, windows
from dataflow_assets.manifests.dialects.sql.windows import columns as window_columns
from dataflow_assets.sql.expressions import Column, Expression, conjunction, conjuncts
from dataflow_assets.sql.function import Environment
from dataflow_assets.sql.stages import Stage
from dataflow_assets.sql.windows import Windows

Refused = Sequence[tuple[Place, str]]


class Refusals(Exception):
    """Parts of a query that are understood, and cannot run."""

    def __init__(self, found: Refused) -> None:
        self.found = found
        super().__init__(found)


@dataclass(frozen=True)
class Relation:
    """Rows: columns of them, over the rows of a table of which a condition holds."""

    table: Declared
    columns: tuple[tuple[str, Expression], ...]
    places: tuple[Place, ...] = ()
    """Where each column is written."""
    where: Expression | None = None
    stages: tuple[Stage, ...] = ()
    """What GROUP BY, DISTINCT and ROW_NUMBER() have made of the rows: columns and condition are
    over the rows of the last one."""
    windows: Windows | None = None
    """Of the rows of the table, whose columns are behind those of the table."""
    bounds: tuple[Expression, ...] = ()
    """Of a row in a window `window_start`, `window_end` and, where it is there, `window_time`."""
    unlimited: Place | None = None
    """Where a ROW_NUMBER() is, as long as the condition may still say how many rows it is about."""

    @property
    def changes(self) -> bool:
        """Whether rows may go as well as come."""
        if self.stages:
            return self.stages[-1].window is None
        return self.table.connector == UPSERT

    def limited(self) -> Relation:
        """With rankings that know how many rows they are about. Raises Unreadable."""
        if self.unlimited is None:
            return self
        stages = limited(self.stages, self.where, self.unlimited)
        return replace(self, stages=stages, unlimited=None)


@dataclass(frozen=True)
class Catalog:
    """What can be read, by name."""

    tables: Mapping[str, Declared]
    views: Mapping[str, tuple[View, Relation]]
    """Each with its rows, which are found out once, where the view is declared."""
    broken: frozenset[str] = frozenset()
    """Names of tables and views that have findings of their own."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """By the name of a table of another file why it cannot be used."""

    def table(self, name: str, place: Place) -> Declared:
        """A table. Raises Unreadable."""
        found = self.tables.get(name)
        if found is not None:
            return found
        if name in self.broken:
            raise Unreadable(place, f"{name} has findings of its own")
        if name in self.unusable:
            raise Unreadable(place, self.unusable[name])
        known = meant(name, [*self.tables, *self.views])
        raise Unreadable(place, f"no table {name} above, or in another file of the folder; {known}")


def related(select: Select, catalog: Catalog, environment: Environment) -> Relation:
    """The rows of a query. Raises Unreadable, or Refusals."""
    if select.refused:
        raise Refusals(select.refused)
    select = over_windows(select)
    source, scope = _source(select, catalog, environment)
    where = source.where
    if select.where is not None:
        found = _condition(select.where, scope, "WHERE")
        where = conjunction((*conjuncts(where), *conjuncts(found)))
    source = replace(source, where=where)
    made = (_grouped if is_grouped(select) else _plain)(select, source, scope)
    return made if select.distinct is None else _distinct(select.distinct, made)


def _plain(select: Select, source: Relation, scope: Scope) -> Relation:
    found = _selected(select, source, scope)
    numbers = numbering(select, scope)
    return found if numbers is None else _ranked(found, numbers)


def _selected(select: Select, source: Relation, scope: Scope) -> Relation:
    columns, places = zip(*_columns(select, scope), strict=True)
    return replace(source, columns=columns, places=places)


def _grouped(select: Select, source: Relation, scope: Scope) -> Relation:
    source = source.limited()
    groups = grouping(select, scope)
    found, numbers = _selected(select, source, groups), numbering(select, groups)
    having = None if select.having is None else _condition(select.having, groups, "HAVING")
    made = stage(groups, source.where, retracts=source.changes)
    found = _in_windows(select.place, replace(found, where=having), source, made)
    return found if numbers is None else _ranked(found, numbers)


def _in_windows(place: Place, found: Relation, source: Relation, made: Stage) -> Relation:
    """With one more stage, whose groups are final with the window that they are in."""
    stages = source.stages
    inside = bool(source.bounds) and set(source.bounds[:2]) <= set(made.keys)
    if source.windows is None or (stages and not inside):
        return replace(found, stages=(*stages, made), bounds=())
    window = closing(made.keys, source.bounds, source.windows, place)
    kept = [one for one in source.bounds if one in made.keys]
    bounds = tuple(Column(one.type, made.keys.index(one)) for one in kept)
    return replace(found, stages=(*stages, replace(made, window=window)), bounds=bounds)


def _ranked(source: Relation, found: Numbering) -> Relation:
    """The rows with their numbers."""
    source = source.limited()
    if source.windows is not None and not source.stages:
        message = "ROW_NUMBER() over rows of windows is not supported: number groups of them"
        raise Unreadable(found.place, message)
    changes, columns = source.changes, [one for _, one in source.columns]
    width = None if source.stages or changes else len(source.table.stored)
    made = ranking(found, columns, source.where, width, retracts=changes)
    passed_on = tuple((name, numbered(made, one, name)) for name, one in source.columns)
    rows = replace(source, columns=passed_on, where=None, unlimited=found.place)
    return _in_windows(found.place, rows, source, made)


def _distinct(place: Place, source: Relation) -> Relation:
    """Each row once: groups without aggregates."""
    source = source.limited()
    for name, one in source.columns:
        if has_map(one.type):
            raise Unreadable(place, f"DISTINCT: {name} is {one.type}, which cannot be compared")
    keys: list[Expression] = []
    keys += (one for _, one in source.columns if one not in keys)
    made = Stage(tuple(keys), (), source.where, retracts=source.changes)
    columns = [(name, Column(one.type, keys.index(one), name)) for name, one in source.columns]
    return _in_windows(place, replace(source, columns=tuple(columns), where=None), source, made)


def _condition(node: Node, scope: Scope, clause: str) -> Expression:
    found = bound(node, scope)
    if found.type.kind not in ("BOOLEAN", "NULL"):
        raise Unreadable(node.place, f"{clause} takes a condition, not {found.type}")
    return found


def _source(select: Select, catalog: Catalog, environment: Environment) -> tuple[Relation, Scope]:
    source = select.source
    if isinstance(source, Windowed):
        return _windowed(source, select.alias, catalog, environment)
    if isinstance(source, Select):
        relation = related(source, catalog, environment)
        return relation, _scope(relation, select.alias, environment)
    return _referred(source, catalog, environment)


def _windowed(
    node: Windowed, alias: str | None, catalog: Catalog, environment: Environment
) -> tuple[Relation, Scope]:
    """Rows once for each window that they are in."""
    relation, scope = _referred(node.table, catalog, environment)
    if relation.stages or relation.windows is not None:
        message = f"a window over {node.table.table} is not supported: windows are over a table"
        raise Unreadable(node.table.place, message)
    found = windows(node, scope, relation.table, environment)
    more = window_columns(found, len(relation.table.stored))
    bounds = tuple(one for _, one in more)
    columns = (*relation.columns, *more)
    relation = replace(relation, columns=columns, windows=found, bounds=bounds)
    return relation, _scope(relation, alias or node.table.table, environment)


def _referred(
    source: Reference, catalog: Catalog, environment: Environment
) -> tuple[Relation, Scope]:
    if source.table in catalog.views:
        view, rows = catalog.views[source.table]
        relation = _renamed(rows, view)
        return relation, _scope(relation, source.alias or source.table, environment)
    table = _table(source, catalog)
    scope = table.scope(environment, source.alias)
    return Relation(table, tuple(scope.columns)), scope


def _scope(relation: Relation, name: str | None, environment: Environment) -> Scope:
    return Scope(relation.columns, frozenset({name} if name else ()), environment)


def _renamed(relation: Relation, view: View) -> Relation:
    if not view.columns:
        return relation
    if len(view.columns) != len(relation.columns):
        message = f"the view has {len(view.columns)} names for {len(relation.columns)} columns"
        raise Unreadable(view.place, message)
    pairs = zip(view.columns, relation.columns, strict=True)
    return replace(relation, columns=tuple((name, one) for name, (_, one) in pairs))


def _table(source: Reference, catalog: Catalog) -> Declared:
    if source.options:
        raise Unreadable(source.place, "hints are not supported: set the options in the table")
    return catalog.table(source.table, source.place)


def _columns(select: Select, scope: Scope) -> Iterator[tuple[tuple[str, Expression], Place]]:
    for number, item in enumerate(select.items):
        if isinstance(item.node, Star):
            scope.whole(item.node)
            if item.node.table and item.node.table not in scope.tables:
                raise Unreadable(item.node.place, f"no table {item.node.table} in FROM")
            yield from (((name, one), item.node.place) for name, one in scope.columns)
        else:
            found = NUMBER if isinstance(item.node, Numbered) else bound(item.node, scope)
            yield (_name(item, number), found), item.node.place


def _name(item: Selected, number: int) -> str:
    if item.alias:
        return item.alias
    return item.node.parts[-1] if isinstance(item.node, Name) else f"EXPR${number}"
