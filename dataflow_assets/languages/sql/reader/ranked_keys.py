"""The PRIMARY KEY of a table that the first rows of each key go into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dataflow_assets.languages.common.tokens import Unreadable
from dataflow_assets.languages.sql.engine.aggregates import ONLY, Aggregate
from dataflow_assets.languages.sql.engine.expressions import (
    Expression,
    FlinkColumn,
    FlinkMember,
    call,
    conjuncts,
    looked_at,
    over_others,
)
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.engine.plan import FlinkOutput
from dataflow_assets.languages.sql.engine.ranking import Ranking
from dataflow_assets.languages.sql.engine.stages import FlinkStage
from dataflow_assets.languages.sql.reader.changelogs import check_upserts
from dataflow_assets.languages.sql.reader.ranking import compared_to
from dataflow_assets.languages.sql.reader.relation import OTHER, Relation, column_at
from dataflow_assets.languages.sql.reader.syntax import FlinkInsert
from dataflow_assets.languages.sql.reader.tables import FlinkDeclared
from dataflow_assets.languages.sql.reader.windows import implied_columns


def by_key(
    insert: FlinkInsert, relation: Relation, target: FlinkDeclared, outputs: tuple[FlinkOutput, ...]
) -> tuple[Relation, tuple[FlinkOutput, ...]]:
    """The rows by the PRIMARY KEY of the target. Raises Unreadable where several could be one row.

    Rows of different keys of PARTITION BY are computed apart. Where the PRIMARY KEY does not have
    all of these columns, a row may go from one of them to another in one micro-batch, so that a
    delete could come behind the row that it is not about: a further stage makes one row of both.
    """
    check_upserts(insert, target, "the query")
    last = relation.stages[-1]
    assert isinstance(last, Ranking)  # noqa: S101 - that is what this is called for
    key_places = {column_at(one.expression) for one in outputs if one.key}
    places = frozenset(at for at in key_places if at is not None)
    places |= implied_columns(relation.windows, relation.bounds, places)
    candidates = list(unique(relation.stages, _primary(relation)))
    if is_single(last, relation.where):
        candidates.append(frozenset(range(len(last.keys))))
    if OTHER in key_places or not any(one <= places for one in candidates):
        message = (
            f"the PRIMARY KEY of {target.name} ({', '.join(target.table.key)}) must have the "
            "columns of PARTITION BY, and the column of ROW_NUMBER() unless WHERE leaves one row "
            "of each, or all columns of the key that the numbered rows have: with another key "
            "several rows could be one"
        )
        raise Unreadable(insert.table_place, message)
    if places >= frozenset(range(len(last.keys))):
        return relation, outputs
    return _as_groups(relation, outputs, sorted(places))


def _primary(relation: Relation) -> frozenset[int]:
    """A row is told by its key, and by the number of each of its items."""
    table = relation.table
    if not table.table.key:
        return frozenset()
    at = {one.name: number for number, one in enumerate(table.stored_columns)}
    items = (one.number_at for one in relation.unnests)
    return frozenset(at[name] for name in table.table.key).union(items)


def _as_groups(
    relation: Relation, outputs: tuple[FlinkOutput, ...], places: Sequence[int]
) -> tuple[Relation, tuple[FlinkOutput, ...]]:
    types = relation.stages[-1].types
    expressions = [one.expression for one in outputs]
    used = sorted(looked_at(expressions) - {*places})
    row = call("ROW", [FlinkColumn(types[at], at) for at in used], Environment())
    keys = tuple(FlinkColumn(types[at], at) for at in places)
    calls = (Aggregate(ONLY, row.type, row),) if used else ()
    groups = FlinkStage(keys, calls, relation.where, retracts=True)
    key_columns: dict[int, Expression] = {
        at: FlinkColumn(types[at], n) for n, at in enumerate(places)
    }
    whole = FlinkColumn(row.type, len(places))
    key_columns |= {at: FlinkMember(types[at], whole, n) for n, at in enumerate(used)}
    others = over_others(expressions, key_columns)
    outputs = tuple(
        replace(one, expression=other) for one, other in zip(outputs, others, strict=True)
    )
    return replace(relation, where=None, stages=(*relation.stages, groups)), outputs


def is_single(stage: Ranking, where: Expression | None) -> bool:
    """Returns whether the condition leaves one row of each key."""
    pairs = (compared_to(stage, one) for one in conjuncts(where))
    return stage.most == 1 or any(one is not None and one[0] == "=" for one in pairs)


def unique(stages: Sequence[FlinkStage], primary: frozenset[int]) -> Iterator[frozenset[int]]:
    """Columns of the last stage's rows that no two of them have the same of.

    Args:
        stages: the last of them passes the rows on; without any the rows are those of the table.
        primary: the places of the table's PRIMARY KEY; empty without one.
    """
    if not stages:
        if primary:
            yield primary
        return
    *before, last = stages
    keys = frozenset(range(len(last.keys)))
    if not isinstance(last, Ranking):
        yield keys
        return
    yield keys | {last.number_at}
    if last.most == 1:
        yield keys
    places = dict(_taken_over(last))
    for one in unique(before, primary):
        if one <= places.keys():
            yield frozenset(places[at] for at in one)


def _taken_over(stage: FlinkStage) -> Iterator[tuple[int, int]]:
    passed_on = [*stage.keys, *(one.argument for one in stage.calls)]
    for place, one in enumerate(passed_on):
        if isinstance(one, FlinkColumn):
            yield one.at, place
