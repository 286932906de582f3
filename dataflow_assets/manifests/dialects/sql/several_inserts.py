"""Several INSERTs into one table, some of which have state: their rows must have other keys."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from dataflow_assets.manifests.dialects.sql.syntax import Insert
from dataflow_assets.manifests.dialects.sql.tokens import Unreadable
from dataflow_assets.sql.expressions import CastTo, Constant, Expression, compiled
from dataflow_assets.sql.function import Environment
from dataflow_assets.sql.plan import Output, Plan
from dataflow_assets.sql.view import ViewPlan


class Made(NamedTuple):
    """An INSERT that was read."""

    insert: Insert
    plan: Plan | ViewPlan


def check_apart(insert: Insert, made: Plan | ViewPlan, others: list[Made]) -> None:
    """Raises Unreadable where rows of another INSERT, and those of this one, could have one key.

    Rows of queries with state are replaced and deleted by their keys, whoever has written them. A
    constant in the PRIMARY KEY that is another one in each INSERT keeps them apart, as it is behind
    its casts.

    Args:
        insert: what was read.
        made: of it.
        others: those before it into the same table; this one is added.
    """
    for other in others:
        if collide(made, other.plan):
            message = (
                f"the INSERT in line {other.insert.place.line} writes into the same table: rows "
                "of both would replace and delete each other; give each a table of its own, or a "
                "constant in a column of the PRIMARY KEY that the other one has not"
            )
            raise Unreadable(insert.query.place, message)
    others.append(Made(insert, made))


def collide(made: Plan | ViewPlan, other: Plan | ViewPlan) -> bool:
    """Whether a row of one could replace, or delete, a row of the other one in the same table."""
    stateful = any(isinstance(one, ViewPlan) and _has_key(one) for one in (made, other))
    return stateful and not _apart(made, other)


def _has_key(made: ViewPlan) -> bool:
    return any(one.key for one in made.outputs)


def _apart(made: Plan | ViewPlan, other: Plan | ViewPlan) -> bool:
    mine, theirs = _constants(made.outputs), _constants(other.outputs)
    return any(name in theirs and _differ(theirs[name], one) for name, one in mine.items())


def _differ(one: Constant, other: Constant) -> bool:
    """Also as the same table may store both; types of two kinds are not compared."""
    a, b = one.type, other.type
    alike = a.kind == b.kind or (a.numeric and b.numeric) or (a.text and b.text)
    return alike and one.value != other.value and str(one.value) != str(other.value)


def _constants(outputs: tuple[Output, ...]) -> dict[str, Constant]:
    """By the column of the PRIMARY KEY its value, where all rows have the same."""
    found = {one.name: _computed(one.expression) for one in outputs if one.key}
    return {name: one for name, one in found.items() if one is not None}


def _computed(one: Expression) -> Constant | None:
    """A constant behind its casts; None where a record, or the zone of the flow, decides."""
    if isinstance(one, Constant):
        return one
    if not isinstance(one, CastTo) or "TIMESTAMP_LTZ" in (one.type.kind, one.given.type.kind):
        return None
    given = _computed(one.given)
    if given is None:
        return None
    try:
        value = compiled(replace(one, given=given), Environment())(())
    except ValueError:
        return None
    return Constant(one.type, value)
