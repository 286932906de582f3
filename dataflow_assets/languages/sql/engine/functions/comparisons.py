"""Comparisons. Both sides become values of their common type first."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from dataflow_assets.languages.sql.engine.casts import cast
from dataflow_assets.languages.sql.engine.function import Environment, Function, Resolve, Resolved
from dataflow_assets.languages.sql.engine.functions.signatures import fit, takes
from dataflow_assets.languages.sql.engine.types import BOOLEAN, NULL, FlinkType, common

_ORDERED = ("BOOLEAN", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "MONTHS", "MILLIS")


def comparable(types: Sequence[FlinkType], environment: Environment) -> Callable[[int], Any]:
    """Returns what makes an argument comparable, by its number. Raises ValueError."""
    numbers = all(one.numeric or one == NULL for one in types)
    if numbers:
        if not all(one.exact or one == NULL for one in types):
            return lambda _: float
        return lambda _: Decimal if any(one.kind == "DECIMAL" for one in types) else None
    kind = common(types)
    if kind is None and any(one.text for one in types):
        # A text beside a time is read as one.
        others = common(one for one in types if not one.text)
        kind = others if others is not None and others.kind in _ORDERED else None
    if kind is None:
        names = " and ".join(dict.fromkeys(map(str, types)))
        raise ValueError(f"{names} cannot be compared: cast one of them")
    target = kind
    casts = [None if one == target else cast(one, target, environment.local) for one in types]
    return lambda index: casts[index]


def _compare(test: Callable[[Any, Any], bool]) -> Resolve:
    def resolve(types: Sequence[FlinkType], environment: Environment) -> Resolved:
        fit(types, ("any", "any"))
        make = comparable(types, environment)
        first, second = make(0), make(1)
        if first is None and second is None:
            return Resolved(BOOLEAN, test)
        a, b = first or _same, second or _same
        return Resolved(BOOLEAN, lambda x, y: test(a(x), b(y)))

    return resolve


EQUAL = _compare(operator.eq)
"""Whether two values are equal that are not null."""


def _distinct(*, negated: bool) -> Resolve:
    def resolve(types: Sequence[FlinkType], environment: Environment) -> Resolved:
        test = EQUAL(types, environment).call

        def call(a: Any, b: Any) -> bool:
            same = a is b if a is None or b is None else test(a, b)
            return bool(same) is negated

        return Resolved(BOOLEAN, call, nulls=True)

    return resolve


def _in(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    """`x IN (a, b)`: null where none is equal and one of them is null."""
    tests = [EQUAL((types[0], one), environment).call for one in types[1:]]

    def call(value: Any, *others: Any) -> bool | None:
        if value is None:
            return None
        pairs = zip(tests, others, strict=True)
        if any(other is not None and test(value, other) for test, other in pairs):
            return True
        return None if None in others else False

    return Resolved(BOOLEAN, call, nulls=True)


def _between(types: Sequence[FlinkType], environment: Environment) -> Resolved:
    fit(types, ("any", "any", "any"))
    low = _compare(operator.ge)((types[0], types[1]), environment).call
    high = _compare(operator.le)((types[0], types[2]), environment).call

    def call(value: Any, least: Any, most: Any) -> bool | None:
        if value is None:
            return None
        above = None if least is None else low(value, least)
        below = None if most is None else high(value, most)
        if above is False or below is False:
            return False
        return None if above is None or below is None else True

    return Resolved(BOOLEAN, call, nulls=True)


def _same(value: Any) -> Any:
    return value


@lru_cache(maxsize=256)
def _like(pattern: str, escape: str = "") -> re.Pattern[str]:
    """Raises ValueError where the escape is in front of something else.

    What is between two `%` is looked for once, where it comes first: a long text never takes long.
    """
    first, *others = _segments(pattern, escape)
    if not others:
        return re.compile(first, re.DOTALL)
    between = "".join(f"(?>.*?{one})" for one in others[:-1] if one)
    return re.compile(f"{first}{between}.*{others[-1]}", re.DOTALL)


def _segments(pattern: str, escape: str) -> list[str]:
    if len(escape) > 1:
        raise ValueError("LIKE: ESCAPE is one character")
    found, signs = [""], iter(pattern)
    for one in signs:
        if escape and one == escape:
            following = next(signs, None)
            if following not in ("%", "_", escape):
                raise ValueError("LIKE: behind the escape is neither %, _ nor the escape itself")
            found[-1] += re.escape(following)
        elif one == "%":
            found.append("")
        else:
            found[-1] += "." if one == "_" else re.escape(one)
    return found


def _is_like(text: str, pattern: str, escape: str | None = None) -> bool:
    """Without ESCAPE a backslash is one where the pattern has `_`: so Flink reads constants."""
    if escape is None:
        escape = "\\" if "_" in pattern else ""
    return _like(pattern, escape).fullmatch(text) is not None


_SAYS = "Numbers of different types are compared by value; a text beside a time is read as one."
FUNCTIONS = (
    Function(
        "=",
        "a = b",
        _SAYS,
        EQUAL,
        (("1 = 1.0", "TRUE"), ("'a' = 'b'", "FALSE"), ("1 = CAST(NULL AS INT)", None)),
        "Comparisons",
    ),
    Function(
        "<>",
        "a <> b",
        "Also `!=`.",
        _compare(operator.ne),
        (("1 <> 2", "TRUE"), ("1 != 1", "FALSE")),
        "Comparisons",
    ),
    Function("<", "a < b", "", _compare(operator.lt), (("1 < 2", "TRUE"),), "Comparisons"),
    Function("<=", "a <= b", "", _compare(operator.le), (("2 <= 2", "TRUE"),), "Comparisons"),
    Function(
        ">",
        "a > b",
        "",
        _compare(operator.gt),
        (("TIMESTAMP '2020-01-01 00:00:00' > '2019-12-31 23:59:59'", "TRUE"),),
        "Comparisons",
    ),
    Function(">=", "a >= b", "", _compare(operator.ge), (("1 >= 2", "FALSE"),), "Comparisons"),
    Function(
        "IS DISTINCT FROM",
        "a IS DISTINCT FROM b",
        "Two nulls are the same; never null.",
        _distinct(negated=False),
        (("CAST(NULL AS INT) IS DISTINCT FROM 1", "TRUE"),),
        "Comparisons",
    ),
    Function(
        "IS NOT DISTINCT FROM",
        "a IS NOT DISTINCT FROM b",
        "The opposite.",
        _distinct(negated=True),
        (("CAST(NULL AS INT) IS NOT DISTINCT FROM CAST(NULL AS INT)", "TRUE"),),
        "Comparisons",
    ),
    Function(
        "BETWEEN",
        "a [NOT] BETWEEN b AND c",
        "Both ends belong to it.",
        _between,
        (("3 BETWEEN 1 AND 3", "TRUE"), ("3 NOT BETWEEN 1 AND 2", "TRUE")),
        "Comparisons",
    ),
    Function(
        "IN",
        "a [NOT] IN (b, ...)",
        "A list of values; subqueries are refused.",
        _in,
        (("1 IN (1, 2)", "TRUE"), ("3 IN (1, CAST(NULL AS INT))", None), ("3 NOT IN (1)", "TRUE")),
        "Comparisons",
    ),
    Function(
        "LIKE",
        "a [NOT] LIKE pattern [ESCAPE c]",
        "`%` is any text, `_` any character. Without ESCAPE a backslash is the escape in a pattern "
        "that has `_` or is no constant, and itself in any other.",
        takes("text text text?", BOOLEAN, _is_like),
        (
            ("'abc' LIKE 'a%'", "TRUE"),
            ("'abc' LIKE '_b'", "FALSE"),
            ("'abcbd' LIKE 'a%b_'", "TRUE"),
            ("'aXbXc' LIKE '%X%X%'", "TRUE"),
            ("'aXbc' LIKE '%X%X%'", "FALSE"),
            (r"'a%c' LIKE 'a\%c' ESCAPE '\'", "TRUE"),
            (r"'axb' LIKE 'a\_b'", "FALSE"),
            (r"'a\b' LIKE 'a\%'", "TRUE"),
            ("'abc' NOT LIKE 'a%'", "FALSE"),
        ),
        "Comparisons",
    ),
)
