"""Numbers cut to digits, and their signs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

from dataflow_assets.languages.sql.engine.function import Environment, Function, Resolve, Resolved
from dataflow_assets.languages.sql.engine.functions.arithmetic import EXACT
from dataflow_assets.languages.sql.engine.functions.signatures import fit
from dataflow_assets.languages.sql.engine.numbers import positive_zero, wrap_around
from dataflow_assets.languages.sql.engine.types import NULL, FlinkType, decimal


def _whole(direction: str, round_float: Callable[[float], int]) -> Resolve:
    def resolve(types: Sequence[FlinkType], _: Environment) -> Resolved:
        fit(types, ("number",))
        kind = types[0]
        if kind.kind == "DECIMAL":
            target = decimal(kind.length - kind.scale + (1 if kind.scale else 0), 0)
            return Resolved(target, lambda value: positive_zero(value.to_integral_value(direction)))
        if kind.integer or kind == NULL:
            return Resolved(kind, lambda value: value)
        return Resolved(
            kind, lambda value: float(round_float(value)) if math.isfinite(value) else value
        )

    return resolve


def _cut_to(direction: str) -> Resolve:
    """ROUND and TRUNCATE, to digits that may be below zero.

    A decimal may get one digit more in front of the point: who binds the call knows the type. It
    never gets more digits behind the point, and has all of its type where the digits are a column.
    """

    def resolve(types: Sequence[FlinkType], _: Environment) -> Resolved:
        fit(types, ("number", "integer?"))
        kind = types[0]

        def call(value: Any, digits: int = 0) -> Any:
            if isinstance(value, float):
                exact = Decimal(repr(value)) if math.isfinite(value) else None
                return value if exact is None else float(_cut(exact, digits, direction))
            if kind.integer:
                return wrap_around(kind.kind, int(_cut(Decimal(value), digits, direction)))
            cut = _cut(_cut(value, min(digits, kind.scale), direction), kind.scale, direction)
            return positive_zero(cut)

        return Resolved(kind, call)

    return resolve


def _cut(value: Decimal, digits: int, direction: str) -> Decimal:
    try:
        return value.quantize(Decimal(1).scaleb(-digits), direction, EXACT)
    except InvalidOperation:
        return value


def _signs(types: Sequence[FlinkType], _: Environment) -> Resolved:
    fit(types, ("number",))
    kind = types[0]
    make: Callable[[int], Any] = float if kind.kind in ("FLOAT", "DOUBLE") else int
    if kind.kind == "DECIMAL":
        return Resolved(kind, lambda value: Decimal(_sign(value)).quantize(_unit(kind)))
    return Resolved(kind, lambda value: make(_sign(value)))


def _sign(value: Any) -> int:
    return int(value > 0) - int(value < 0)


def _unit(kind: FlinkType) -> Decimal:
    return Decimal(1).scaleb(-kind.scale)


_GROUP = "Numbers"
FUNCTIONS = (
    Function(
        "FLOOR",
        "FLOOR(a)",
        "Of a time: see times.",
        _whole(ROUND_FLOOR, math.floor),
        (("FLOOR(-1.5)", "-2"),),
        _GROUP,
    ),
    Function(
        "CEIL",
        "CEIL(a)",
        "Also `CEILING`.",
        _whole(ROUND_CEILING, math.ceil),
        (("CEIL(1.2)", "2"), ("CEILING(1.2)", "2")),
        _GROUP,
    ),
    Function(
        "ROUND",
        "ROUND(a[, digits])",
        "Halves are rounded away from zero.",
        _cut_to(ROUND_HALF_UP),
        (
            ("ROUND(2.345, 2)", "2.35"),
            ("ROUND(-2.5, 0)", "-3"),
            ("ROUND(1250, -2)", "1300"),
            ("ROUND(9.995, 2)", "10.00"),
            ("ROUND(1.50, 4)", "1.50"),
        ),
        _GROUP,
    ),
    Function(
        "TRUNCATE",
        "TRUNCATE(a[, digits])",
        "",
        _cut_to(ROUND_DOWN),
        (("TRUNCATE(42.345, 2)", "42.34"), ("TRUNCATE(-1.9)", "-1")),
        _GROUP,
    ),
    Function(
        "SIGN",
        "SIGN(a)",
        "-1, 0 or 1, of the type of a.",
        _signs,
        (("SIGN(-3)", "-1"), ("SIGN(-1.5)", "-1.0"), ("SIGN(CAST(2 AS DOUBLE))", "1.0")),
        _GROUP,
    ),
)
