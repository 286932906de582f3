"""Numbers. Whole ones overflow as Java's do; decimals have the digits that Flink gives them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

from dataflow_assets.languages.sql.engine.function import Environment, Function, Resolve, Resolved
from dataflow_assets.languages.sql.engine.functions.moments import shift
from dataflow_assets.languages.sql.engine.functions.signatures import fit, is_time
from dataflow_assets.languages.sql.engine.numbers import (
    positive_zero,
    rounder,
    single,
    wrap_around,
    wrapper,
)
from dataflow_assets.languages.sql.engine.types import (
    BITS,
    DOUBLE,
    INT,
    NULL,
    FlinkType,
    as_decimal,
    decimal,
)

EXACT = Context(prec=80)
Call = Callable[[Any, Any], Any]


def _sum(a: FlinkType, b: FlinkType) -> FlinkType:
    scale = max(a.scale, b.scale)
    return decimal(max(a.length - a.scale, b.length - b.scale) + scale + 1, scale)


def _product(a: FlinkType, b: FlinkType) -> FlinkType:
    return decimal(a.length + b.length + 1, a.scale + b.scale)


def _quotient(a: FlinkType, b: FlinkType) -> FlinkType:
    scale = max(6, a.scale + b.length + 1)
    return decimal(a.length - a.scale + b.scale + scale, scale)


def _remainder(a: FlinkType, b: FlinkType) -> FlinkType:
    scale = max(a.scale, b.scale)
    return decimal(min(a.length - a.scale, b.length - b.scale) + scale, scale)


def _operator(
    whole: Call, exact: Call, approximate: Call, digits: Callable[[FlinkType, FlinkType], FlinkType]
) -> Resolve:
    def resolve(types: Sequence[FlinkType], _: Environment) -> Resolved:
        fit(types, ("number", "number"))
        a, b = (one if one != NULL else INT for one in types)
        if a.integer and b.integer:
            wide = max(a, b, key=lambda one: BITS[one.kind])
            wrap = wrapper(wide.kind)
            return Resolved(wide, lambda x, y: wrap(whole(x, y)))
        if a.exact and b.exact:
            kind = digits(as_decimal(a), as_decimal(b))
            cut = rounder(kind)
            if not a.integer and not b.integer:
                return Resolved(kind, lambda x, y: cut(exact(x, y)))
            return Resolved(kind, lambda x, y: cut(exact(Decimal(x), Decimal(y))))
        if "DOUBLE" in (a.kind, b.kind) or (
            a.exact is not b.exact and "DECIMAL" in (a.kind, b.kind)
        ):
            return Resolved(DOUBLE, lambda x, y: approximate(float(x), float(y)))
        return Resolved(FlinkType("FLOAT"), lambda x, y: single(approximate(float(x), float(y))))

    return resolve


def _additive(sign: int, numbers: Resolve) -> Resolve:
    """Numbers, or a time and an interval."""

    def resolve(types: Sequence[FlinkType], environment: Environment) -> Resolved:
        if sign < 0 and len(types) == 2 and all(map(is_time, types)):
            raise ValueError("two times are not subtracted: write TIMESTAMPDIFF(SECOND, a, b)")
        if not any(one.interval for one in types):
            return numbers(types, environment)
        fit(types, ("any", "any"))
        first, second = types
        if first.interval and second == first:
            return Resolved(first, lambda x, y: x + sign * y)
        if first.interval and sign > 0:
            move = shift(second, first)
            return Resolved(second, lambda x, y: move(y, x))
        move = shift(first, second)
        return Resolved(first, lambda x, y: move(x, sign * y))

    return resolve


def _divide(a: int, b: int) -> int:
    """The fraction is cut, as in Java."""
    if b == 0:
        raise ValueError("division by zero")
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _modulo(a: int, b: int) -> int:
    return a - b * _divide(a, b)


def _decimal_divided(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        raise ValueError("division by zero")
    return EXACT.divide(a, b)


def _decimal_left(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        raise ValueError("division by zero")
    return EXACT.remainder(a, b)


def float_divided(a: float, b: float) -> float:
    """Divides; by zero the result is NaN or an infinity, as in Java."""
    if b:
        return a / b
    return math.nan if not a or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def _float_left(a: float, b: float) -> float:
    return math.fmod(a, b) if b and math.isfinite(a) else math.nan


def _unary(call: Callable[[Any], Any]) -> Resolve:
    def resolve(types: Sequence[FlinkType], _: Environment) -> Resolved:
        fit(types, ("number",))
        if types[0].integer:
            kind = types[0].kind
            return Resolved(types[0], lambda value: wrap_around(kind, call(value)))
        return Resolved(types[0], call)

    return resolve


def _negate(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    if types[0].interval:
        return Resolved(types[0], lambda value: -value)
    if types[0].kind == "DECIMAL":
        return _unary(lambda value: positive_zero(-value))(types, environment)
    return _unary(lambda value: -value)(types, environment)


_GROUP = "Numbers"
FUNCTIONS = (
    Function(
        "+",
        "a + b",
        "Numbers, or a time and an interval; months are added to a TIMESTAMP_LTZ in UTC. Whole "
        "numbers overflow as in Java.",
        _additive(1, _operator(lambda x, y: x + y, EXACT.add, lambda x, y: x + y, _sum)),
        (
            ("1 + 2", "3"),
            ("2147483647 + 1", "-2147483648"),
            ("1.5 + 2", "3.5"),
            ("TIMESTAMP '2020-01-31 10:00:00' + INTERVAL '1' MONTH", "2020-02-29 10:00:00"),
        ),
        _GROUP,
    ),
    Function(
        "-",
        "a - b",
        "As `+`.",
        _additive(-1, _operator(lambda x, y: x - y, EXACT.subtract, lambda x, y: x - y, _sum)),
        (
            ("1 - 2", "-1"),
            ("TIMESTAMP '2020-12-30 12:13:14' - INTERVAL '2' SECOND", "2020-12-30 12:13:12"),
        ),
        _GROUP,
    ),
    Function(
        "*",
        "a * b",
        "",
        _operator(lambda x, y: x * y, EXACT.multiply, lambda x, y: x * y, _product),
        (("6 * 7", "42"), ("1.5 * 1.5", "2.25")),
        _GROUP,
    ),
    Function(
        "/",
        "a / b",
        "Of whole numbers the fraction is cut: 10 / 3 is 3. By zero the record is rejected, "
        "floating numbers aside.",
        _operator(_divide, _decimal_divided, float_divided, _quotient),
        (
            ("10 / 3", "3"),
            ("-7 / 2", "-3"),
            ("10.0 / 4", "2.500000000000"),
            ("CAST(1 AS DOUBLE) / 0", "Infinity"),
        ),
        _GROUP,
    ),
    Function(
        "%",
        "a % b",
        "With the sign of a. Also `MOD(a, b)`.",
        _operator(_modulo, _decimal_left, _float_left, _remainder),
        (("-7 % 3", "-1"), ("MOD(7, 3)", "1")),
        _GROUP,
    ),
    Function("NEGATE", "-a", "", _negate, (("-(1 + 2)", "-3"),), _GROUP),
    Function("ABS", "ABS(a)", "", _unary(abs), (("ABS(-2)", "2"), ("ABS(-1.5)", "1.5")), _GROUP),
)
