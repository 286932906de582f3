"""Numbers. Whole ones overflow as Java's do; decimals have the digits that Flink gives them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import (
    ROUND_CEILING,
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_UP,
    Context,
    Decimal,
    InvalidOperation,
)
from typing import Any

from dataflow_assets.sql.casts import rounder, single, wrapped, wrapper
from dataflow_assets.sql.function import Environment, Function, Resolve, Resolved
from dataflow_assets.sql.functions.moments import shifted
from dataflow_assets.sql.functions.signatures import fit, takes
from dataflow_assets.sql.types import BITS, DOUBLE, INT, NULL, Type, as_decimal, decimal

_EXACT = Context(prec=80)
Call = Callable[[Any, Any], Any]


def _wider(a: Type, b: Type) -> Type:
    return max(a, b, key=lambda one: BITS[one.kind])


def _sum(a: Type, b: Type) -> Type:
    scale = max(a.scale, b.scale)
    return decimal(max(a.length - a.scale, b.length - b.scale) + scale + 1, scale)


def _product(a: Type, b: Type) -> Type:
    return decimal(a.length + b.length + 1, a.scale + b.scale)


def _quotient(a: Type, b: Type) -> Type:
    scale = max(6, a.scale + b.length + 1)
    return decimal(a.length - a.scale + b.scale + scale, scale)


def _remainder(a: Type, b: Type) -> Type:
    scale = max(a.scale, b.scale)
    return decimal(min(a.length - a.scale, b.length - b.scale) + scale, scale)


def _operator(
    whole: Call, exact: Call, approximate: Call, digits: Callable[[Type, Type], Type]
) -> Resolve:
    def resolve(types: Sequence[Type], _: Environment) -> Resolved:
        fit(types, ("number", "number"))
        a, b = (one if one != NULL else INT for one in types)
        if a.integer and b.integer:
            wide = _wider(a, b)
            wrap = wrapper(wide.kind)
            return Resolved(wide, lambda x, y: wrap(whole(x, y)))
        if a.exact and b.exact:
            wanted = digits(as_decimal(a), as_decimal(b))
            cut = rounder(wanted)
            if not a.integer and not b.integer:
                return Resolved(wanted, lambda x, y: cut(exact(x, y)))
            return Resolved(wanted, lambda x, y: cut(exact(Decimal(x), Decimal(y))))
        if "DOUBLE" in (a.kind, b.kind) or (
            a.exact is not b.exact and "DECIMAL" in (a.kind, b.kind)
        ):
            return Resolved(DOUBLE, lambda x, y: approximate(float(x), float(y)))
        return Resolved(Type("FLOAT"), lambda x, y: single(approximate(float(x), float(y))))

    return resolve


def _additive(sign: int, numbers: Resolve) -> Resolve:
    """Numbers, or a time and an interval."""

    def resolve(types: Sequence[Type], environment: Environment) -> Resolved:
        if not any(one.interval for one in types):
            return numbers(types, environment)
        fit(types, ("any", "any"))
        first, second = types
        if first.interval and second == first:
            return Resolved(first, lambda x, y: x + sign * y)
        if first.interval and sign > 0:
            move = shifted(second, first, environment.local)
            return Resolved(second, lambda x, y: move(y, x))
        move = shifted(first, second, environment.local)
        return Resolved(first, lambda x, y: move(x, sign * y))

    return resolve


def _divided(a: int, b: int) -> int:
    """The fraction is cut, as in Java."""
    if b == 0:
        raise ValueError("division by zero")
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


def _left(a: int, b: int) -> int:
    """With the sign of the first."""
    return a - b * _divided(a, b)


def _decimal_divided(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        raise ValueError("division by zero")
    return _EXACT.divide(a, b)


def _decimal_left(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        raise ValueError("division by zero")
    return _EXACT.remainder(a, b)


def _float_divided(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if not a or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def _float_left(a: float, b: float) -> float:
    return math.fmod(a, b) if b and math.isfinite(a) else math.nan


def _unary(call: Callable[[Any], Any]) -> Resolve:
    """Of the argument's own type."""

    def resolve(types: Sequence[Type], _: Environment) -> Resolved:
        fit(types, ("number",))
        if types[0].integer:
            kind = types[0].kind
            return Resolved(types[0], lambda value: wrapped(kind, call(value)))
        return Resolved(types[0], call)

    return resolve


def _negated(types: Sequence[Type], environment: Environment) -> Resolved:
    if types[0].interval:
        return Resolved(types[0], lambda value: -value)
    return _unary(lambda value: -value)(types, environment)


def _whole(direction: str, round_float: Callable[[float], int]) -> Resolve:
    """FLOOR and CEIL."""

    def resolve(types: Sequence[Type], _: Environment) -> Resolved:
        fit(types, ("number",))
        kind = types[0]
        if kind.kind == "DECIMAL":
            wanted = decimal(kind.length - kind.scale + (1 if kind.scale else 0), 0)
            return Resolved(wanted, lambda value: value.to_integral_value(direction))
        if kind.integer or kind == NULL:
            return Resolved(kind, lambda value: value)
        return Resolved(
            kind, lambda value: float(round_float(value)) if math.isfinite(value) else value
        )

    return resolve


def _cut_to(direction: str) -> Resolve:
    """ROUND and TRUNCATE, to digits that may be below zero."""

    def resolve(types: Sequence[Type], _: Environment) -> Resolved:
        fit(types, ("number", "integer?"))
        kind = types[0]
        fit_again = rounder(kind) if kind.kind == "DECIMAL" else None

        def call(value: Any, digits: int = 0) -> Any:
            if isinstance(value, float):
                exact = Decimal(repr(value)) if math.isfinite(value) else None
                return value if exact is None else float(_cut(exact, digits, direction))
            found = _cut(Decimal(value), digits, direction)
            return fit_again(found) if fit_again else wrapped(kind.kind, int(found))

        return Resolved(kind, call)

    return resolve


def _cut(value: Decimal, digits: int, direction: str) -> Decimal:
    try:
        return value.quantize(Decimal(1).scaleb(-digits), direction, _EXACT)
    except InvalidOperation:
        return value


def _double(call: Callable[..., float], families: str = "number") -> Resolve:
    """A function of floating numbers."""
    return takes(families, DOUBLE, lambda *values: call(*map(float, values)))


def _or_nan(call: Callable[[float], float]) -> Callable[[float], float]:
    """Where it has no value NaN, as in Java."""

    def computed(value: float) -> float:
        try:
            return call(value)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return computed


def _logarithm(call: Callable[[float], float]) -> Callable[[float], float]:
    return lambda value: -math.inf if value == 0 else _or_nan(call)(value)


def _log(first: float, second: float | None = None) -> float:
    """Of one number the natural one, of two that of the second to the base of the first."""
    log = _logarithm(math.log)
    return log(first) if second is None else _float_divided(log(second), log(first))


def _power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except ValueError:
        if base != 0:
            return math.nan
        odd = exponent % 2 == 1
        return math.copysign(math.inf, base) if odd else math.inf
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf


def _signs(types: Sequence[Type], _: Environment) -> Resolved:
    """Of the argument's own type."""
    fit(types, ("number",))
    kind = types[0]
    make: Callable[[int], Any] = float if kind.kind in ("FLOAT", "DOUBLE") else int
    if kind.kind == "DECIMAL":
        return Resolved(kind, lambda value: Decimal(_sign(value)).quantize(_unit(kind)))
    return Resolved(kind, lambda value: make(_sign(value)))


def _sign(value: Any) -> int:
    return int(value > 0) - int(value < 0)


def _unit(kind: Type) -> Decimal:
    return Decimal(1).scaleb(-kind.scale)


_GROUP = "Numbers"
FUNCTIONS = (
    Function(
        "+",
        "a + b",
        "Numbers, or a time and an interval. Whole numbers overflow as in Java.",
        _additive(1, _operator(lambda x, y: x + y, _EXACT.add, lambda x, y: x + y, _sum)),
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
        _additive(-1, _operator(lambda x, y: x - y, _EXACT.subtract, lambda x, y: x - y, _sum)),
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
        _operator(lambda x, y: x * y, _EXACT.multiply, lambda x, y: x * y, _product),
        (("6 * 7", "42"), ("1.5 * 1.5", "2.25")),
        _GROUP,
    ),
    Function(
        "/",
        "a / b",
        "Of whole numbers the fraction is cut: 10 / 3 is 3. By zero the record is rejected, "
        "floating numbers aside.",
        _operator(_divided, _decimal_divided, _float_divided, _quotient),
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
        _operator(_left, _decimal_left, _float_left, _remainder),
        (("-7 % 3", "-1"), ("MOD(7, 3)", "1")),
        _GROUP,
    ),
    Function("NEGATE", "-a", "", _negated, (("-(1 + 2)", "-3"),), _GROUP),
    Function("ABS", "ABS(a)", "", _unary(abs), (("ABS(-2)", "2"), ("ABS(-1.5)", "1.5")), _GROUP),
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
        (("ROUND(2.345, 2)", "2.35"), ("ROUND(-2.5, 0)", "-3"), ("ROUND(1250, -2)", "1300")),
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
    Function(
        "POWER",
        "POWER(a, b)",
        "",
        _double(_power, "number number"),
        (
            ("POWER(2, 10)", "1024.0"),
            ("POWER(0, -1)", "Infinity"),
            ("POWER(-10, 309)", "-Infinity"),
            ("POWER(-8, 0.5)", "NaN"),
        ),
        _GROUP,
    ),
    Function(
        "SQRT",
        "SQRT(a)",
        "",
        _double(_or_nan(math.sqrt)),
        (("SQRT(16)", "4.0"), ("SQRT(-1)", "NaN")),
        _GROUP,
    ),
    Function(
        "EXP",
        "EXP(a)",
        "",
        _double(_or_nan(math.exp)),
        (("EXP(0)", "1.0"), ("EXP(1000)", "Infinity")),
        _GROUP,
    ),
    Function(
        "LN",
        "LN(a)",
        "",
        _double(_logarithm(math.log)),
        (("LN(1)", "0.0"), ("LN(0)", "-Infinity")),
        _GROUP,
    ),
    Function(
        "LOG10", "LOG10(a)", "", _double(_logarithm(math.log10)), (("LOG10(1000)", "3.0"),), _GROUP
    ),
    Function("LOG2", "LOG2(a)", "", _double(_logarithm(math.log2)), (("LOG2(8)", "3.0"),), _GROUP),
    Function(
        "LOG",
        "LOG([base, ]a)",
        "Without a base the natural one.",
        _double(_log, "number number?"),
        (
            ("LOG(1)", "0.0"),
            ("LOG(2, 8)", "3.0"),
            ("LOG(2, 0)", "-Infinity"),
            ("LOG(1, 8)", "Infinity"),
            ("LOG(-1)", "NaN"),
        ),
        _GROUP,
    ),
)
