"""UNION ALL: queries whose rows are together the rows of one, column by column of one type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from dataflow_assets.languages.common.tokens import Place, Unreadable
from dataflow_assets.languages.sql.engine.expressions import FlinkColumn, cast_to
from dataflow_assets.languages.sql.engine.types import FlinkType, common
from dataflow_assets.languages.sql.reader.refusals import UNITED
from dataflow_assets.languages.sql.reader.relation import Relation, Rows
from dataflow_assets.languages.sql.reader.syntax import Select

MOST_TABLES = 1000  # of one query: each use of a view is read by itself

Part = tuple[Select, Sequence[Relation]]
"""A query and its rows, which may be those of several tables; their columns have one type each."""


def alike(parts: Sequence[Part]) -> tuple[Relation, ...]:
    """All rows, with the names that the first query has for their columns. Raises Unreadable."""
    first = parts[0][1][0]
    if (count := sum(len(relations) for _, relations in parts)) > MOST_TABLES:
        message = (
            f"UNION ALL: these are the rows of {count} queries, with those of the views, and at "
            f"most {MOST_TABLES} are supported: a view that is united with itself doubles them"
        )
        raise Unreadable(parts[-1][0].place, message)
    for query, relations in parts:
        if len(relations[0].columns) != len(first.columns):
            message = (
                f"UNION ALL: this query has {len(relations[0].columns)} columns, and the first "
                f"one {len(first.columns)}"
            )
            raise Unreadable(query.place, message)
    types = [_type(parts, at) for at in range(len(first.columns))]
    names = [name for name, _ in first.columns]
    return tuple(_cast(one, names, types) for _, relations in parts for one in relations)


def _type(parts: Sequence[Part], at: int) -> FlinkType:
    name, first = parts[0][1][0].columns[at]
    kind = first.type
    for _, (relation, *_) in parts:
        other = relation.columns[at][1].type
        both = common((kind, other))
        if both is None:
            message = f"UNION ALL: {name} is {kind}, and here {other}: write CAST(... AS {kind})"
            raise Unreadable(relation.places[at], message)
        kind = both
    return kind


def _cast(relation: Relation, names: Sequence[str], types: Sequence[FlinkType]) -> Relation:
    pairs = zip(names, relation.columns, types, strict=True)
    columns = tuple((name, cast_to(one, kind)) for name, (_, one), kind in pairs)
    return replace(relation, columns=columns)


def as_one(place: Place, parts: Sequence[Rows]) -> Rows:
    """All rows as those of one table, for a stage that takes them together. Raises Unreadable.

    Args:
        place: of the query.
        parts: the rows, whose columns have the same names and types in each of them.
    """
    for relation, _ in parts:
        _check(place, relation)
    first, scope = parts[0]
    numbered = enumerate(first.columns)
    columns = tuple((name, FlinkColumn(one.type, at, name)) for at, (name, one) in numbered)
    ends = [*accumulate(len(some) for _, some in scope.tables)]
    begins = [0, *ends[:-1]]
    names = (name for name, _ in scope.tables)
    spans = zip(names, begins, ends, strict=True)
    tables = tuple((name, columns[begin:end]) for name, begin, end in spans)
    united = Relation(first.table, columns, united=tuple(one for one, _ in parts))
    return united, replace(scope, columns=columns, tables=tables)


def _check(place: Place, relation: Relation) -> None:
    name = relation.table.name
    if relation.stages or relation.windows is not None:
        kind = "a query of groups or windows"
        raise Unreadable(place, UNITED.format(f"the part that reads {name}, {kind},"))
    if relation.changes:
        raise Unreadable(place, UNITED.format(f"{name}, whose rows are replaced and deleted,"))
