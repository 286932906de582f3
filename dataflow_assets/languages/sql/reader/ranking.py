"""ROW_NUMBER() in a SELECT, and the condition around it that says how many rows it is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dataflow_assets.languages.common.tokens import Place, Unreadable
from dataflow_assets.languages.sql.engine.aggregates import Aggregate
from dataflow_assets.languages.sql.engine.expressions import (
    CastTo,
    Expression,
    FlinkCall,
    FlinkColumn,
    FlinkConstant,
    conjuncts,
)
from dataflow_assets.languages.sql.engine.metadata import METADATA
from dataflow_assets.languages.sql.engine.plan import Cell
from dataflow_assets.languages.sql.engine.ranking import NUMBERED, FlinkOrder, Ranking
from dataflow_assets.languages.sql.engine.stages import FlinkStage
from dataflow_assets.languages.sql.engine.types import BIGINT
from dataflow_assets.languages.sql.engine.unnest import Unnest
from dataflow_assets.languages.sql.reader.bind import Scope, bound
from dataflow_assets.languages.sql.reader.grouping import has_map
from dataflow_assets.languages.sql.reader.syntax import FlinkNumbered, Node, Select

MOST = 100_000
"""The largest number of rows of a key."""
NUMBER = FlinkColumn(BIGINT, -1)
"""Stands for the number until its place is known."""
_ARRIVAL = ("offset", "partition")
_FLIPPED = {">=": "<=", ">": "<", "=": "=", "<=": ">=", "<": ">"}


@dataclass(frozen=True)
class Numbering:
    """ROW_NUMBER() with the types of what it looks at."""

    place: Place
    partition: tuple[Expression, ...]
    order: tuple[tuple[Expression, bool, bool], ...]
    """Of each expression whether it descends, and whether nulls are first."""


@dataclass(frozen=True)
class FlinkArrival:
    """The columns that tell when a row came: after its own columns, and among them."""

    width: int
    """How many columns it has: behind are offset and partition of its message."""
    unnests: tuple[Unnest, ...] = ()
    """What has made it one of several rows of the message."""

    @property
    def columns(self) -> Iterator[FlinkColumn]:
        """In the order in which rows come."""
        for at, name in enumerate(_ARRIVAL):
            yield FlinkColumn(METADATA[name], self.width + at, name)
        for one in self.unnests:
            yield FlinkColumn(one.types[-1], one.number_at, "number")


def numbering(select: Select, scope: Scope) -> Numbering | None:
    """That of a SELECT; None where there is none. Raises Unreadable."""
    numbers = [one.node for one in select.items if isinstance(one.node, FlinkNumbered)]
    if not numbers:
        return None
    if len(numbers) > 1:
        message = "a second ROW_NUMBER() in one SELECT: write it in a SELECT around this one"
        raise Unreadable(numbers[1].place, message)
    (node,) = numbers
    partition = [_comparable(one, scope, "PARTITION BY") for one in node.partition]
    order = [(_orderable(one.node, scope), one.descending, one.nulls_first) for one in node.order]
    different: list[Expression] = []
    different += (one for one in partition if one not in different)
    return Numbering(node.place, tuple(different), tuple(order))


def _comparable(node: Node, scope: Scope, clause: str) -> Expression:
    expression = bound(node, scope)
    if has_map(expression.type):
        raise Unreadable(node.place, f"{clause}: {expression.type} cannot be compared")
    return expression


def _orderable(node: Node, scope: Scope) -> Expression:
    expression = bound(node, scope)
    if expression.type.items or expression.type.kind == "NULL":
        message = (
            f"ORDER BY: {expression.type} has no order; allowed: numbers, texts, times, booleans"
        )
        raise Unreadable(node.place, message)
    return expression


def ranking(
    numbers: Numbering,
    columns: Iterable[Expression],
    where: Expression | None,
    arrival: FlinkArrival | None,
    *,
    retracts: bool,
) -> Ranking:
    """The rows of a SELECT by their numbers; how many of them are of use is not known yet.

    Args:
        numbers: the ROW_NUMBER().
        columns: of the SELECT.
        where: of the rows that are numbered.
        arrival: of rows that only come: what tells when that was.
        retracts: whether rows may go as well.
    """
    conditions: list[Expression] = []
    conditions += (one for one in columns if _is_stored(one, numbers) and one not in conditions)
    conditions += (one for one, _, _ in numbers.order if one not in conditions)
    order = [
        FlinkOrder(conditions.index(one), descending, first)
        for one, descending, first in numbers.order
    ]
    late = _is_latest(numbers)
    for one in () if arrival is None else arrival.columns:
        conditions += () if one in conditions else (one,)
        order.append(FlinkOrder(conditions.index(one), late, not late))
    calls = tuple(Aggregate(NUMBERED, one.type, one) for one in conditions)
    return Ranking(numbers.partition, calls, where, retracts=retracts, order=tuple(order))


def _is_stored(one: Expression, numbers: Numbering) -> bool:
    return one != NUMBER and not isinstance(one, FlinkConstant) and one not in numbers.partition


def arrival_cells(stage: FlinkStage) -> Iterator[Cell]:
    """Returns what `ranking` has behind the columns of a table whose rows only come."""
    if isinstance(stage, Ranking) and not stage.retracts:
        for name in _ARRIVAL:
            yield Cell(name, "metadata", metadata=name, type=METADATA[name])


def _is_latest(numbers: Numbering) -> bool:
    """Tells whether the latest row is the first: of two at one time the one that came later.

    Of rows with any other equal values the one that came first stays.
    """
    first, descending, _ = numbers.order[0]
    return descending and first.type.kind in ("TIMESTAMP", "TIMESTAMP_LTZ")


def number_column(ranked: Ranking, one: Expression, name: str) -> Expression:
    """A column of the SELECT, over what the ranking passes on."""
    if one == NUMBER:
        return FlinkColumn(BIGINT, ranked.number_at, name)
    if one in ranked.keys:
        return FlinkColumn(one.type, ranked.keys.index(one), name)
    if isinstance(one, FlinkConstant):
        return one
    at = next(at for at, call in enumerate(ranked.calls) if call.argument == one)
    return FlinkColumn(one.type, len(ranked.keys) + at, name)


def limit_rankings(
    stages: Sequence[FlinkStage], where: Expression | None, place: Place
) -> tuple[FlinkStage, ...]:
    """Stages of which the last one is a ranking, with how many of its rows are of use.

    Raises Unreadable, at the place of ROW_NUMBER(), where the condition around it does not say so.
    """
    *others, last = stages
    assert isinstance(last, Ranking)  # noqa: S101 - so it was made
    most = min(_limits(last, where), default=None)
    if most is None or most > MOST:
        message = (
            "ROW_NUMBER() is supported for the first rows of each key: write a SELECT around it "
            f"with WHERE rn <= 3, or another number up to {MOST}"
        )
        raise Unreadable(place, message)
    return (*others, replace(last, most=max(most, 1)))


def _limits(stage: Ranking, where: Expression | None) -> Iterator[int]:
    for one in conjuncts(where):
        if isinstance(one, FlinkCall) and one.name == "BETWEEN":
            value, _, high = one.arguments
            one = FlinkCall(one.type, "<=", (value, high))  # noqa: PLW2901 - the half that limits
        bounded = compared_to(stage, one)
        if bounded is not None and bounded[0] in ("<", "<=", "="):
            yield bounded[1] - (bounded[0] == "<")


def compared_to(stage: Ranking, one: Expression) -> tuple[str, int] | None:
    """Returns the operator and the limit of the number; None for other expressions."""
    if not isinstance(one, FlinkCall) or one.name not in _FLIPPED:
        return None
    left, right = map(_bare, one.arguments)
    name = one.name
    if isinstance(left, FlinkConstant):
        left, right, name = right, left, _FLIPPED[name]
    if left != FlinkColumn(BIGINT, stage.number_at) or not isinstance(right, FlinkConstant):
        return None
    return (name, right.value) if isinstance(right.value, int) else None


def _bare(one: Expression) -> Expression:
    return _bare(one.given) if isinstance(one, CastTo) and one.type.exact else one
