"""Several INSERTs into one table: rows that are replaced and deleted must have other keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dataflow_assets.languages.common.tokens import Unreadable
from dataflow_assets.languages.sql.engine.expressions import (
    CastTo,
    Expression,
    FlinkCall,
    FlinkColumn,
    FlinkConstant,
    Shared,
    compile_expression,
    lasting,
    operands,
)
from dataflow_assets.languages.sql.engine.function import NO_VALUE, Environment
from dataflow_assets.languages.sql.engine.plan import FlinkPlan
from dataflow_assets.languages.sql.engine.ranking import Ranking
from dataflow_assets.languages.sql.engine.stages import FlinkStage
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.reader.syntax import FlinkInsert

Known = dict[tuple[int, int], FlinkConstant | None]
"""Of expressions, by the number of stages below them and by identity."""


class PlannedInsert(NamedTuple):
    """An INSERT that was read."""

    insert: FlinkInsert
    plan: FlinkPlan | ViewPlan


def check_apart(
    insert: FlinkInsert, plan: FlinkPlan | ViewPlan, others: list[PlannedInsert]
) -> None:
    """Raises Unreadable where rows of another INSERT, and those of this one, could have one key.

    Rows of queries with state, and of tables of upserts, are replaced and deleted by their keys,
    whoever has written them. A constant in the PRIMARY KEY that is another one in each INSERT
    keeps them apart, as it is behind its casts.

    Args:
        insert: what was read.
        plan: of it.
        others: those before it into the same table; this one is added.
    """
    for other in others:
        if collide(plan, other.plan):
            message = f"the INSERT in line {other.insert.place.line} writes into the same table"
            raise Unreadable(insert.query.place, f"{message}, {reason(plan)}")
    others.append(PlannedInsert(insert, plan))


def reason(plan: FlinkPlan | ViewPlan) -> str:
    """Why an INSERT that collides with another one is refused, and what to write instead."""
    key = ", ".join(one.name for one in plan.outputs if one.key)
    same = f"PRIMARY KEY ({key})" if key else "PRIMARY KEY"
    return (
        f"and its rows may have the same {same}: rows of both would replace and delete each other. "
        "Add a column to the PRIMARY KEY in which each INSERT has a constant of its own, like 'a' "
        "and 'b', or give each a table of its own"
    )


def collide(plan: FlinkPlan | ViewPlan, other: FlinkPlan | ViewPlan) -> bool:
    """Tells whether a row of one could replace or delete a row of the other in one table."""
    return (_changes(plan) or _changes(other)) and not _apart(plan, other)


def _changes(plan: FlinkPlan | ViewPlan) -> bool:
    if isinstance(plan, FlinkPlan):
        return plan.changelog
    return any(one.key for one in plan.outputs)


def _apart(plan: FlinkPlan | ViewPlan, other: FlinkPlan | ViewPlan) -> bool:
    mine, theirs = dict(_constants(plan)), dict(_constants(other))
    return any(name in theirs and _differ(theirs[name], one) for name, one in mine.items())


def _differ(one: FlinkConstant, other: FlinkConstant) -> bool:
    """Also as the same table may store both; types of two kinds are not compared."""
    a, b = one.type, other.type
    alike = a.kind == b.kind or (a.numeric and b.numeric) or (a.text and b.text)
    return alike and one.value != other.value and str(one.value) != str(other.value)


def _constants(plan: FlinkPlan | ViewPlan) -> Iterator[tuple[str, FlinkConstant]]:
    stages = plan.stages if isinstance(plan, ViewPlan) else ()
    constants: Known = {}
    for one in plan.outputs:
        constant = _constant(one.expression, plan.shared, stages, constants) if one.key else None
        if constant is not None:
            yield one.name, constant


def _constant(
    one: Expression, shared: Sequence[Expression], stages: Sequence[FlinkStage], known: Known
) -> FlinkConstant | None:
    """A constant, computed; None where a record, the present or the zone of the flow decides.

    Args:
        one: over the rows of the last stage, or of the table.
        shared: what it may need.
        stages: those above the table.
        known: what was computed before; what several expressions need is computed once.
    """
    at = len(stages), id(one)
    if at not in known:
        known[at] = _compute(one, shared, stages, known)
    return known[at]


def _compute(
    one: Expression, shared: Sequence[Expression], stages: Sequence[FlinkStage], known: Known
) -> FlinkConstant | None:
    if isinstance(one, FlinkConstant):
        return one
    if isinstance(one, Shared):
        return _constant(shared[one.at], shared, stages, known)
    if isinstance(one, FlinkColumn):
        inner = _passed_on(stages[-1]).get(one.at) if stages else None
        return None if inner is None else _constant(inner, stages[-1].shared, stages[:-1], known)
    results = [_constant(inner, shared, stages, known) for inner in operands(one)]
    constants = [inner for inner in results if inner is not None]
    if len(constants) < len(results) or not lasting(one):
        return None
    if any(inner.type.kind == "TIMESTAMP_LTZ" for inner in (one, *constants)):
        return None
    if isinstance(one, CastTo):
        return _evaluate(replace(one, given=constants[0]))
    return (
        _evaluate(replace(one, arguments=tuple(constants))) if isinstance(one, FlinkCall) else None
    )


def _passed_on(stage: FlinkStage) -> Mapping[int, Expression]:
    keys = dict(enumerate(stage.keys))
    if isinstance(stage, Ranking):
        arguments = enumerate((one.argument for one in stage.calls), len(stage.keys))
        keys |= {at: one for at, one in arguments if one is not None}
    return keys


def _evaluate(one: Expression) -> FlinkConstant | None:
    try:
        return FlinkConstant(one.type, compile_expression(one, Environment())(()))
    except NO_VALUE:
        return None
