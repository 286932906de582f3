"""Expressions with their types, and the functions on rows that they become.

Made when a file is loaded, sent to the tasks, compiled there once for each task. A row is a list;
null is None.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dataflow_assets.languages.sql.engine.casts import cast
from dataflow_assets.languages.sql.engine.function import Environment, Evaluate, Row
from dataflow_assets.languages.sql.engine.functions import FUNCTIONS
from dataflow_assets.languages.sql.engine.functions.times import presents
from dataflow_assets.languages.sql.engine.types import BOOLEAN, FlinkType

_UNFOLDED = 1000  # parts of a condition
_LARGEST = 1000  # types inside one type: rows of rows would double it at each level


@dataclass(frozen=True)
class FlinkConstant:
    """A value of the text."""

    type: FlinkType
    value: Any


@dataclass(frozen=True)
class FlinkColumn:
    """The value of a row at a place."""

    type: FlinkType
    at: int
    name: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class FlinkCall:
    """A function and its arguments."""

    type: FlinkType
    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class CastTo:
    """CAST, or TRY_CAST."""

    type: FlinkType
    given: Expression
    tries: bool = False
    """What cannot be cast becomes null."""


@dataclass(frozen=True)
class FlinkMember:
    """A field of a row inside a row."""

    type: FlinkType
    given: Expression
    at: int


@dataclass(frozen=True)
class Shared:
    """Expressions that are computed once for a row, by their numbers."""

    type: FlinkType
    at: int


Expression = FlinkConstant | FlinkColumn | FlinkCall | CastTo | FlinkMember | Shared


def call(name: str, arguments: Sequence[Expression], environment: Environment) -> FlinkCall:
    """A call with its type. Raises ValueError where the function does not take the arguments."""
    resolved = FUNCTIONS[name].resolve([one.type for one in arguments], environment)
    if resolved.type.size > _LARGEST:
        raise ValueError(f"the result is made of more than {_LARGEST} types")
    return FlinkCall(resolved.type, name, tuple(arguments))


def cast_to(given: Expression, wanted: FlinkType, *, tries: bool = False) -> Expression:
    """A cast, where one is needed. Raises ValueError where Flink casts no such values."""
    if given.type == wanted:
        return given
    if cast(given.type, wanted, Environment().local) is None:
        raise ValueError(f"{given.type} cannot be cast to {wanted}")
    return CastTo(wanted, given, tries)


def operands(expression: Expression) -> tuple[Expression, ...]:
    if isinstance(expression, FlinkCall):
        return expression.arguments
    return (expression.given,) if isinstance(expression, CastTo | FlinkMember) else ()


def parts(
    expressions: Iterable[Expression], shared: Sequence[Expression] = ()
) -> Iterator[Expression]:
    """Expressions and all that they are made of, each once; `shared`: what they may need.

    A view's column is one object wherever it is used: views over views have few objects, and as
    good as endlessly many ways to them.
    """
    seen: set[int] = set()
    waiting = list(expressions)
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += (shared[one.at],) if isinstance(one, Shared) else operands(one)


def columns(expression: Expression, shared: Sequence[Expression] = ()) -> frozenset[int]:
    """The places of a row that it looks at; `shared`: what it may need."""
    return looked_at((expression,), shared)


def looked_at(
    expressions: Iterable[Expression], shared: Sequence[Expression] = ()
) -> frozenset[int]:
    """The places of a row that expressions look at; `shared`: what they may need."""
    return frozenset(one.at for one in parts(expressions, shared) if isinstance(one, FlinkColumn))


def over_others(
    expressions: Sequence[Expression], columns: Mapping[int, Expression]
) -> tuple[Expression, ...]:
    """Expressions with something else in place of each column, by its place."""
    results: dict[int, Expression] = {}  # a part that several have is looked at once

    def replace_columns(one: Expression) -> Expression:
        if isinstance(one, FlinkColumn):
            return columns[one.at]
        if id(one) not in results:
            results[id(one)] = one
            if isinstance(one, FlinkCall):
                inner = tuple(map(replace_columns, one.arguments))
                results[id(one)] = replace(one, arguments=inner)
            elif isinstance(one, CastTo | FlinkMember):
                results[id(one)] = replace(one, given=replace_columns(one.given))
        return results[id(one)]

    return tuple(map(replace_columns, expressions))


def conjuncts(condition: Expression | None) -> tuple[Expression, ...]:
    """Splits a condition at AND; as often as views use a part, as plans of stored states have it.

    Of views over views that may be exponentially often: of very many parts each is there once.
    """
    terms = _unfold(condition, once=False)
    return tuple(terms if len(terms) <= _UNFOLDED else _unfold(condition, once=True))


def _unfold(condition: Expression | None, *, once: bool) -> list[Expression]:
    terms: list[Expression] = []
    seen: set[int] = set()
    waiting = [] if condition is None else [condition]
    while waiting and (once or len(terms) <= _UNFOLDED):
        one = waiting.pop()
        if not isinstance(one, FlinkCall) or one.name != "AND":
            terms.append(one)
        elif not once or id(one) not in seen:
            seen.add(id(one))
            waiting += reversed(one.arguments)
    return terms


def conjunction(conditions: Sequence[Expression]) -> Expression | None:
    """All of them in one; None where there is none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return FlinkCall(BOOLEAN, "AND", tuple(conditions))


def lasting(expression: Expression) -> bool:
    """Returns whether it has the same value for the same row at all times."""
    calls = (one for one in parts((expression,)) if isinstance(one, FlinkCall))
    return not any(presents(one.name, len(one.arguments)) for one in calls)


def program(
    shared: Sequence[Expression], environment: Environment
) -> Callable[[Expression], Evaluate]:
    """Returns a compiler of a query's expressions: shared parts are computed once for a row."""
    built: list[Evaluate] = []
    for one in shared:
        built.append(_once(compile_expression(one, environment, built)))
    return lambda expression: compile_expression(expression, environment, built)


def _once(inner: Evaluate) -> Evaluate:
    last: Row | None = None
    value: Any = None

    def evaluate(row: Row) -> Any:
        nonlocal last, value
        if row is not last:
            value, last = inner(row), row
        return value

    return evaluate


def compile_expression(
    expression: Expression, environment: Environment, shared: Sequence[Evaluate] = ()
) -> Evaluate:
    if isinstance(expression, FlinkConstant):
        value = expression.value
        return lambda _: value
    if isinstance(expression, FlinkColumn):
        return operator.itemgetter(expression.at)
    if isinstance(expression, Shared):
        return shared[expression.at]
    inner = [compile_expression(one, environment, shared) for one in operands(expression)]
    if isinstance(expression, CastTo):
        return _cast(expression, inner[0], environment)
    if isinstance(expression, FlinkMember):
        return _of_one(operator.itemgetter(expression.at), inner[0])
    return _call(expression, inner, environment)


def _cast(expression: CastTo, inner: Evaluate, environment: Environment) -> Evaluate:
    change = cast(expression.given.type, expression.type, environment.local)
    assert change is not None, "was looked at when the file was loaded"  # noqa: S101
    tries = expression.tries

    def evaluate(row: Row) -> Any:
        value = inner(row)
        if value is None:
            return None
        try:
            return change(value)
        except (ValueError, OverflowError) as error:
            if tries:
                return None
            raise ValueError(f"CAST to {expression.type}: {error}") from None

    return evaluate


def _call(expression: FlinkCall, inner: Sequence[Evaluate], environment: Environment) -> Evaluate:
    types = [one.type for one in expression.arguments]
    resolved = FUNCTIONS[expression.name].resolve(types, environment)
    run = resolved.call
    if resolved.whole:
        evaluate: Evaluate = run(*inner)
        return evaluate
    if resolved.nulls:
        return lambda row: run(*[one(row) for one in inner])
    last = expression.arguments[-1] if expression.arguments else None
    if len(inner) == 2 and isinstance(last, FlinkConstant) and last.value is not None:
        return _with_constant(run, inner[0], last.value)
    return _strict(run, inner)


def _strict(run: Callable[..., Any], inner: Sequence[Evaluate]) -> Evaluate:
    if len(inner) == 1:
        return _of_one(run, inner[0])
    if len(inner) == 2:
        return _of_two(run, *inner)

    def evaluate(row: Row) -> Any:
        values = [one(row) for one in inner]
        return None if any(one is None for one in values) else run(*values)

    return evaluate


def _of_one(run: Callable[..., Any], inner: Evaluate) -> Evaluate:
    def evaluate(row: Row) -> Any:
        value = inner(row)
        return None if value is None else run(value)

    return evaluate


def _of_two(run: Callable[..., Any], first: Evaluate, second: Evaluate) -> Evaluate:
    def evaluate(row: Row) -> Any:
        a, b = first(row), second(row)
        return None if a is None or b is None else run(a, b)

    return evaluate


def _with_constant(run: Callable[..., Any], inner: Evaluate, constant: Any) -> Evaluate:
    def evaluate(row: Row) -> Any:
        value = inner(row)
        return None if value is None else run(value, constant)

    return evaluate
