"""A SELECT over tables, views and other SELECTs -> expressions over one table's rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dataflow_assets.languages.common.tokens import Place, Unreadable
from dataflow_assets.languages.sql.engine.expressions import (
    Expression,
    FlinkColumn,
    conjunction,
    conjuncts,
)
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.engine.sharing import unify
from dataflow_assets.languages.sql.engine.stages import FlinkStage
from dataflow_assets.languages.sql.reader.bind import Named, Scope, bound
from dataflow_assets.languages.sql.reader.group_windows import over_windows
from dataflow_assets.languages.sql.reader.grouping import grouping, has_map, is_grouped, stage
from dataflow_assets.languages.sql.reader.ranking import (
    NUMBER,
    FlinkArrival,
    Numbering,
    number_column,
    numbering,
    ranking,
)
from dataflow_assets.languages.sql.reader.relation import (
    FlinkCatalog,
    FlinkRefusals,
    Relation,
    Rows,
)
from dataflow_assets.languages.sql.reader.syntax import (
    FlinkName,
    FlinkNumbered,
    FlinkReference,
    FlinkUnnestedJoin,
    Node,
    Query,
    Select,
    Selected,
    Star,
    United,
    View,
    Windowed,
)
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared
from dataflow_assets.languages.sql.reader.unions import alike, as_one
from dataflow_assets.languages.sql.reader.unnesting import columns as unnested_columns
from dataflow_assets.languages.sql.reader.unnesting import unnest
from dataflow_assets.languages.sql.reader.windows import closing, windows
from dataflow_assets.languages.sql.reader.windows import columns as window_columns


def relations(
    query: Query, catalog: FlinkCatalog, environment: Environment
) -> tuple[Relation, ...]:
    """The rows of a query: of several tables where UNION ALL is between them.

    Raises Unreadable, or Refusals.
    """
    if isinstance(query, United):
        return alike([(one, relations(one, catalog, environment)) for one in query.queries])
    if query.refused:
        raise FlinkRefusals(query.refused)
    select = over_windows(query)
    sources = [_narrow(select, *one) for one in _sources(select, catalog, environment)]
    if len(sources) > 1 and _keeps(select):
        sources = [as_one(select.place, sources)]
    return tuple(_make(select, *one) for one in sources)


def _narrow(select: Select, source: Relation, scope: Scope) -> Rows:
    """Rows with their items, of which WHERE holds."""
    for one in select.unnested:
        source, scope = _unnest(one, source, scope)
    return _filter(source, select.where, scope, "WHERE"), scope


def _keeps(select: Select) -> bool:
    numbered_by = any(isinstance(one.node, FlinkNumbered) for one in select.items)
    return is_grouped(select) or select.distinct is not None or numbered_by


def _make(select: Select, source: Relation, scope: Scope) -> Relation:
    relation = (_group if is_grouped(select) else _plain)(select, source, scope)
    return relation if select.distinct is None else _distinct(select.distinct, relation)


def _plain(select: Select, source: Relation, scope: Scope) -> Relation:
    selected = _select(select, source, scope)
    numbers = numbering(select, scope)
    return selected if numbers is None else _rank(selected, numbers)


def _select(select: Select, source: Relation, scope: Scope) -> Relation:
    columns, places = zip(*_columns(select, scope), strict=True)
    names, found = zip(*columns, strict=True)
    columns = tuple(zip(names, unify(found), strict=True))
    return replace(source, columns=columns, places=places)


def _group(select: Select, source: Relation, scope: Scope) -> Relation:
    source = source.limit_rankings()
    groups = grouping(select, scope)
    windowed, numbers = _select(select, source, groups), numbering(select, groups)
    having = None if select.having is None else _condition(select.having, groups, "HAVING")
    group_stage = stage(groups, source.where, retracts=source.changes)
    windowed = _in_windows(select.place, replace(windowed, where=having), source, group_stage)
    return windowed if numbers is None else _rank(windowed, numbers)


def _in_windows(place: Place, relation: Relation, source: Relation, groups: FlinkStage) -> Relation:
    """With one more stage, whose groups are final with the window that they are in."""
    stages = source.stages
    inside = bool(source.bounds) and set(source.bounds[:2]) <= set(groups.keys)
    if source.windows is None or (stages and not inside):
        return replace(relation, stages=(*stages, groups), bounds=())
    window = closing(groups.keys, source.bounds, source.windows, place)
    kept = [one for one in source.bounds if one in groups.keys]
    bounds = tuple(FlinkColumn(one.type, groups.keys.index(one)) for one in kept)
    return replace(relation, stages=(*stages, replace(groups, window=window)), bounds=bounds)


def _rank(source: Relation, numbers: Numbering) -> Relation:
    source = source.limit_rankings()
    if source.windows is not None and not source.stages:
        message = "ROW_NUMBER() over rows of windows is not supported: number groups of them"
        raise Unreadable(numbers.place, message)
    if source.united and not source.stages:
        message = (
            "ROW_NUMBER() over UNION ALL is not supported, as nothing says which of two tables is "
            "first: number groups of these rows, or write them into one topic and number its rows"
        )
        raise Unreadable(numbers.place, message)
    changes, columns = source.changes, [one for _, one in source.columns]
    arrived = None if source.stages or changes else FlinkArrival(source.width, source.unnests)
    ranked = ranking(numbers, columns, source.where, arrived, retracts=changes)
    passed_on = tuple((name, number_column(ranked, one, name)) for name, one in source.columns)
    rows = replace(source, columns=passed_on, where=None, unlimited=numbers.place)
    return _in_windows(numbers.place, rows, source, ranked)


def _distinct(place: Place, source: Relation) -> Relation:
    source = source.limit_rankings()
    for name, one in source.columns:
        if has_map(one.type):
            raise Unreadable(place, f"DISTINCT: {name} is {one.type}, which cannot be compared")
    keys: list[Expression] = []
    keys += (one for _, one in source.columns if one not in keys)
    groups = FlinkStage(tuple(keys), (), source.where, retracts=source.changes)
    columns = [(name, FlinkColumn(one.type, keys.index(one), name)) for name, one in source.columns]
    return _in_windows(place, replace(source, columns=tuple(columns), where=None), source, groups)


def _filter(source: Relation, node: Node | None, scope: Scope, clause: str) -> Relation:
    if node is None:
        return source
    condition = _condition(node, scope, clause)
    return replace(source, where=conjunction((*conjuncts(source.where), *conjuncts(condition))))


def _condition(node: Node, scope: Scope, clause: str) -> Expression:
    condition = bound(node, scope)
    if condition.type.kind not in ("BOOLEAN", "NULL"):
        raise Unreadable(node.place, f"{clause} takes a condition, not {condition.type}")
    return condition


def _sources(select: Select, catalog: FlinkCatalog, environment: Environment) -> list[Rows]:
    source = select.source
    if isinstance(source, Windowed):
        return [_window(source, select.alias, catalog, environment)]
    if isinstance(source, FlinkReference):
        return _rows_of(source, catalog, environment)
    parts = relations(source, catalog, environment)
    return [(one, _scope(one, select.alias, environment)) for one in parts]


def _window(
    node: Windowed, alias: str | None, catalog: FlinkCatalog, environment: Environment
) -> Rows:
    """Rows once for each window that they are in."""
    (relation, scope), *others = _rows_of(node.table, catalog, environment)
    if others or relation.stages or relation.windows is not None or relation.unnests:
        message = f"a window over {node.table.table} is not supported: windows are over a table"
        message += "; UNNEST is behind them" if relation.unnests else ""
        raise Unreadable(node.table.place, message)
    if relation.changes and not relation.table.table.key:
        message = (
            f"a window over {node.table.table}, whose rows come and go, needs its PRIMARY KEY: "
            "declare it"
        )
        raise Unreadable(node.table.place, message)
    window = windows(node, scope, relation.table, environment)
    more = window_columns(window, len(relation.table.stored_columns))
    bounds = tuple(one for _, one in more)
    columns = (*relation.columns, *more)
    relation = replace(relation, columns=columns, windows=window, bounds=bounds)
    return relation, _scope(relation, alias or node.table.table, environment)


def _unnest(node: FlinkUnnestedJoin, relation: Relation, scope: Scope) -> Rows:
    """Rows once for each of their items."""
    if relation.stages:
        message = (
            "UNNEST of groups, or of numbered rows, is not supported: unnest the rows that they "
            "are made of"
        )
        raise Unreadable(node.place, message)
    unnested = unnest(node, scope, relation.where, relation.width)
    more = unnested_columns(node, unnested)
    joined = replace(
        relation,
        columns=(*relation.columns, *more),
        where=None,
        unnests=(*relation.unnests, unnested),
        unnested=relation.unnested or node.place,
    )
    tables = (*scope.tables, (node.alias or "", more))
    scope = replace(scope, columns=joined.columns, tables=tables)
    return _filter(joined, node.condition, scope, "ON"), scope


def _rows_of(source: FlinkReference, catalog: FlinkCatalog, environment: Environment) -> list[Rows]:
    if source.table in catalog.views:
        view, rows = catalog.views[source.table]
        renamed = [_rename(one, view) for one in rows]
        return [(one, _scope(one, source.alias or source.table, environment)) for one in renamed]
    table = _table(source, catalog)
    scope = table.scope(environment, source.alias)
    return [(Relation(table, tuple(scope.columns)), scope)]


def _scope(relation: Relation, name: str | None, environment: Environment) -> Scope:
    return Scope(relation.columns, ((name or "", relation.columns),), environment)


def _rename(relation: Relation, view: View) -> Relation:
    if not view.columns:
        return relation
    if len(view.columns) != len(relation.columns):
        message = f"the view has {len(view.columns)} names for {len(relation.columns)} columns"
        raise Unreadable(view.place, message)
    pairs = zip(view.columns, relation.columns, strict=True)
    return replace(relation, columns=tuple((name, one) for name, (_, one) in pairs))


def _table(source: FlinkReference, catalog: FlinkCatalog) -> FlinkDeclared:
    if source.options:
        raise Unreadable(source.place, "hints are not supported: set the options in the table")
    return catalog.table(source.table, source.place)


def _columns(select: Select, scope: Scope) -> Iterator[tuple[tuple[str, Expression], Place]]:
    for number, item in enumerate(select.items):
        if isinstance(item.node, Star):
            scope.whole(item.node)
            yield from ((one, item.node.place) for one in _star(item.node, scope))
        else:
            expression = NUMBER if isinstance(item.node, FlinkNumbered) else bound(item.node, scope)
            yield (_name(item, number), expression), item.node.place


def _star(node: Star, scope: Scope) -> Named:
    scope_columns = scope.columns if node.table is None else scope.of_table(node.table)
    if scope_columns is None:
        raise Unreadable(node.place, f"no table {node.table} in FROM")
    return scope_columns


def _name(item: Selected, number: int) -> str:
    if item.alias:
        return item.alias
    return item.node.parts[-1] if isinstance(item.node, FlinkName) else f"EXPR${number}"
