"""Powers, roots and logarithms: floating numbers, as Java computes them."""

from __future__ import annotations

import math
from collections.abc import Callable

from dataflow_assets.languages.sql.engine.function import Function, Resolve
from dataflow_assets.languages.sql.engine.functions.arithmetic import float_divided
from dataflow_assets.languages.sql.engine.functions.signatures import takes
from dataflow_assets.languages.sql.engine.types import DOUBLE


def _double(call: Callable[..., float], families: str = "number") -> Resolve:
    return takes(families, DOUBLE, lambda *values: call(*map(float, values)))


def _or_nan(call: Callable[[float], float]) -> Callable[[float], float]:
    def compute(value: float) -> float:
        try:
            return call(value)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return compute


def _logarithm(call: Callable[[float], float]) -> Callable[[float], float]:
    return lambda value: -math.inf if value == 0 else _or_nan(call)(value)


def _log(first: float, second: float | None = None) -> float:
    log = _logarithm(math.log)
    return log(first) if second is None else float_divided(log(second), log(first))


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


_GROUP = "Numbers"
FUNCTIONS = (
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
