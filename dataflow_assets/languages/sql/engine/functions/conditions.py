"""CASE and its relatives: the results become values of their common type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dataflow_assets.languages.sql.engine.casts import cast
from dataflow_assets.languages.sql.engine.function import (
    Environment,
    Evaluate,
    Function,
    Resolved,
    Row,
)
from dataflow_assets.languages.sql.engine.functions.comparisons import comparable
from dataflow_assets.languages.sql.engine.functions.signatures import fit
from dataflow_assets.languages.sql.engine.types import FlinkType, common


def _common_type(types: Sequence[FlinkType]) -> FlinkType:
    kind = common(types)
    if kind is None:
        names = " and ".join(dict.fromkeys(map(str, types)))
        raise ValueError(f"{names} have no common type: cast one of them")
    return kind


def _cast(
    inner: Evaluate, given: FlinkType, wanted: FlinkType, environment: Environment
) -> Evaluate:
    change = None if given == wanted else cast(given, wanted, environment.local)
    if change is None:
        return inner

    def evaluate(row: Row) -> Any:
        value = inner(row)
        return None if value is None else change(value)

    return evaluate


def _case(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    """Conditions and results in turns, the other result last."""
    fit(types[:-1:2], ("boolean*",))
    results = [*types[1:-1:2], types[-1]]
    kind = _common_type(results)

    def build(*inner: Evaluate) -> Evaluate:
        branches = [*inner[1:-1:2], inner[-1]]
        cast_each = zip(branches, results, strict=True)
        values = [_cast(one, given, kind, environment) for one, given in cast_each]
        arms = list(zip(inner[:-1:2], values[:-1], strict=True))
        other = values[-1]

        def evaluate(row: Row) -> Any:
            for holds, value in arms:
                if holds(row) is True:
                    return value(row)
            return other(row)

        return evaluate

    return Resolved(kind, build, whole=True)


def _if(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    fit(types, ("boolean", "any", "any"))
    return _case(types, environment)


def _coalesce(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    fit(types, ("any", "any*"))
    kind = _common_type(types)

    def build(*inner: Evaluate) -> Evaluate:
        pairs = zip(inner, types, strict=True)
        values = [_cast(one, given, kind, environment) for one, given in pairs]

        def evaluate(row: Row) -> Any:
            for one in values:
                value = one(row)
                if value is not None:
                    return value
            return None

        return evaluate

    return Resolved(kind, build, whole=True)


def _nullif(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    fit(types, ("any", "any"))
    make = comparable(types, environment)
    first, second = make(0), make(1)

    def call(a: Any, b: Any) -> Any:
        if a is None or b is None:
            return a
        return None if (first(a) if first else a) == (second(b) if second else b) else a

    return Resolved(types[0], call, nulls=True)


def _extreme(choose: Callable[..., Any]) -> Callable[[Sequence[FlinkType], Environment], Resolved]:
    def resolve(types: Sequence[FlinkType], environment: Environment) -> Resolved:
        fit(types, ("any*",))
        kind = _common_type(types)
        casts = [None if one == kind else cast(one, kind, environment.local) for one in types]

        def call(*values: Any) -> Any:
            pairs = zip(casts, values, strict=True)
            fitting = [one if change is None else change(one) for change, one in pairs]
            return None if None in fitting else choose(fitting)

        return Resolved(kind, call)

    return resolve


FUNCTIONS = (
    Function(
        "CASE",
        "CASE [a] WHEN b THEN c ... [ELSE d] END",
        "The first result whose condition is true; without ELSE null.",
        _case,
        (
            ("CASE WHEN 1 = 2 THEN 'a' ELSE 'b' END", "b"),
            ("CASE 2 WHEN 1 THEN 'a' WHEN 2 THEN 'c' END", "c"),
            ("CASE WHEN 1 = 2 THEN 1 END", None),
        ),
        "Conditions",
    ),
    Function(
        "IF",
        "IF(condition, a, b)",
        "",
        _if,
        (("IF(1 < 2, 'a', 'b')", "a"), ("IF(CAST(NULL AS BOOLEAN), 1, 2)", "2")),
        "Conditions",
    ),
    Function(
        "COALESCE",
        "COALESCE(a, b, ...)",
        "The first that is not null.",
        _coalesce,
        (("COALESCE(CAST(NULL AS INT), 2)", "2"), ("COALESCE(1, 2.5)", "1.0")),
        "Conditions",
    ),
    Function(
        "IFNULL",
        "IFNULL(a, b)",
        "b where a is null.",
        _coalesce,
        (("IFNULL(CAST(NULL AS STRING), 'x')", "x"),),
        "Conditions",
    ),
    Function(
        "NULLIF",
        "NULLIF(a, b)",
        "Null where both are equal, else a.",
        _nullif,
        (("NULLIF(5, 5)", None), ("NULLIF(5, 0)", "5")),
        "Conditions",
    ),
    Function(
        "GREATEST",
        "GREATEST(a, ...)",
        "The largest; null where one is null.",
        _extreme(max),
        (("GREATEST(1, 3, 2)", "3"), ("GREATEST(1, CAST(NULL AS INT))", None)),
        "Conditions",
    ),
    Function(
        "LEAST",
        "LEAST(a, ...)",
        "The smallest; null where one is null.",
        _extreme(min),
        (("LEAST('b', 'a')", "a"),),
        "Conditions",
    ),
)
