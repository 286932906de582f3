"""Expressions with their types, and the functions on rows that they become.

Made when a file is loaded, sent to the tasks, compiled there once for each task. A row is a list;
null is None.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dataflow_assets.sql.casts import cast
from dataflow_assets.sql.function import Environment, Evaluate, Row
from dataflow_assets.sql.functions import FUNCTIONS
from dataflow_assets.sql.types import Type


@dataclass(frozen=True)
class Constant:
    """A value of the text."""

    type: Type
    value: Any


@dataclass(frozen=True)
class Column:
    """The value of a row at a place."""

    type: Type
    at: int
    name: str = field(default="", compare=False)


@dataclass(frozen=True)
class Call:
    """A function and its arguments."""

    type: Type
    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class CastTo:
    """CAST, or TRY_CAST."""

    type: Type
    given: Expression
    tries: bool = False
    """What cannot be cast becomes null."""


@dataclass(frozen=True)
class Member:
    """A field of a row inside a row."""

    type: Type
    given: Expression
    at: int


Expression = Constant | Column | Call | CastTo | Member


def call(name: str, arguments: Sequence[Expression], environment: Environment) -> Call:
    """A call with its type. Raises ValueError where the function does not take the arguments."""
    resolved = FUNCTIONS[name].resolve([one.type for one in arguments], environment)
    return Call(resolved.type, name, tuple(arguments))


def cast_to(given: Expression, wanted: Type, *, tries: bool = False) -> Expression:
    """A cast, where one is needed. Raises ValueError where Flink casts no such values."""
    if given.type == wanted:
        return given
    if cast(given.type, wanted, Environment().local) is None:
        raise ValueError(f"{given.type} cannot be cast to {wanted}")
    return CastTo(wanted, given, tries)


def columns(expression: Expression) -> frozenset[int]:
    """The places of a row that it looks at."""
    if isinstance(expression, Column):
        return frozenset({expression.at})
    if isinstance(expression, Call):
        return frozenset[int]().union(*map(columns, expression.arguments))
    return frozenset() if isinstance(expression, Constant) else columns(expression.given)


def compiled(expression: Expression, environment: Environment) -> Evaluate:
    """The function that computes it."""
    if isinstance(expression, Constant):
        value = expression.value
        return lambda _: value
    if isinstance(expression, Column):
        at = expression.at
        return lambda row: row[at]
    if isinstance(expression, CastTo):
        return _cast(expression, environment)
    if isinstance(expression, Member):
        return _of_one(operator.itemgetter(expression.at), compiled(expression.given, environment))
    return _call(expression, environment)


def _cast(expression: CastTo, environment: Environment) -> Evaluate:
    inner = compiled(expression.given, environment)
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


def _call(expression: Call, environment: Environment) -> Evaluate:
    types = [one.type for one in expression.arguments]
    resolved = FUNCTIONS[expression.name].resolve(types, environment)
    inner = [compiled(one, environment) for one in expression.arguments]
    run = resolved.call
    if resolved.whole:
        found: Evaluate = run(*inner)
        return found
    if resolved.nulls:
        return lambda row: run(*[one(row) for one in inner])
    return _strict(run, inner)


def _strict(run: Callable[..., Any], inner: Sequence[Evaluate]) -> Evaluate:
    if len(inner) == 1:
        return _of_one(run, inner[0])
    if len(inner) == 2:
        return _of_two(run, *inner)

    def evaluate(row: Row) -> Any:
        values = [one(row) for one in inner]
        return None if None in values else run(*values)

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
