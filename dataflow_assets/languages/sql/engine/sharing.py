"""Expressions that have parts in common -> those parts, each once, and expressions over them.

A view's column is an expression in each place where the column is used: without this, views over
views would double it at each level. Functions have no effects, so parts that are equal are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dataflow_assets.languages.sql.engine.expressions import (
    CastTo,
    Expression,
    FlinkCall,
    FlinkColumn,
    FlinkConstant,
    FlinkMember,
    Shared,
    operands,
)

MOST_LEVELS = 100  # each takes several calls of Python's, which allows a thousand


@dataclass
class _Parts:
    """Each part by its number: those that it is made of have smaller ones."""

    parts: list[Expression] = field(default_factory=list)
    inner: list[tuple[int, ...]] = field(default_factory=list)
    uses: Counter[int] = field(default_factory=Counter)
    by_key: dict[object, int] = field(default_factory=dict)
    by_id: dict[int, int] = field(default_factory=dict)
    depths: list[int] = field(default_factory=list)

    def number(self, expression: Expression) -> int:
        place = self.by_id.get(id(expression))
        if place is None:
            inner = tuple(map(self.number, operands(expression)))
            place = self.by_key.setdefault(_key(expression, inner), len(self.parts))
            self.by_id[id(expression)] = place
            if place == len(self.parts):
                self.parts.append(expression)
                self.inner.append(inner)
                self.uses.update(inner)
                self.depths.append(1 + max((self.depths[at] for at in inner), default=0))
        return place


def _key(expression: Expression, inner: tuple[int, ...]) -> object:
    own: object = None
    if isinstance(expression, FlinkConstant):
        own = repr(expression.value)
    elif isinstance(expression, FlinkColumn | FlinkMember):
        own = expression.at
    elif isinstance(expression, FlinkCall):
        own = expression.name
    elif isinstance(expression, CastTo):
        own = expression.tries
    return type(expression), expression.type, own, inner


def unify(expressions: Sequence[Expression]) -> tuple[Expression, ...]:
    """Returns the expressions with one object for all that are equal.

    Objects are compared at once; equal ones of many levels by each way through them.
    """
    pool = _Parts()
    return tuple(pool.parts[pool.number(one)] for one in expressions)


def share(
    expressions: Sequence[Expression],
) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
    """The parts that are needed more than once, and the expressions over them.

    A part may need those before it. Raises ValueError for an expression that is too deep to be sent
    to the tasks and computed there.
    """
    pool = _Parts()
    roots = [pool.number(one) for one in expressions]
    if max(pool.depths, default=0) > MOST_LEVELS:
        raise ValueError(f"an expression has more than {MOST_LEVELS} levels, with those of views")
    pool.uses.update(roots)
    built: list[Expression] = []
    lifted: list[Expression] = []
    for number, part in enumerate(pool.parts):
        one = _over(part, [built[at] for at in pool.inner[number]])
        if pool.uses[number] > 1 and pool.inner[number]:
            lifted.append(one)
            one = Shared(part.type, len(lifted) - 1)
        built.append(one)
    return tuple(lifted), tuple(built[at] for at in roots)


def _over(part: Expression, inner: list[Expression]) -> Expression:
    if isinstance(part, FlinkCall):
        return replace(part, arguments=tuple(inner))
    return replace(part, given=inner[0]) if isinstance(part, CastTo | FlinkMember) else part
