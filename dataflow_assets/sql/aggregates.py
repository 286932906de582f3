"""Aggregate functions: their types, and how each is kept up to date by rows that come and go.

What is kept of an aggregate is a list that msgpack can write. It depends on which rows are there,
never on their order: also the sum of floating numbers, which is kept without rounding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any

from dataflow_assets.sql.casts import rounder, single, wrapped
from dataflow_assets.sql.expressions import Expression
from dataflow_assets.sql.types import BIGINT, MOST_DIGITS, Type
from dataflow_assets.sql.values import pack, unpack, value_of

_EXACT = Context(prec=120)
_UNIT = 1074
"""The smallest floating number is 2 to the power of minus this."""
ONLY = "ONLY"
"""In place of a name: the one row that a group has. No query can write it."""
_COMPARED = ("CHAR", "VARCHAR", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of a SELECT."""

    name: str
    type: Type
    argument: Expression | None = None
    """None: COUNT(*)."""
    distinct: bool = False
    condition: Expression | None = None
    """Of FILTER (WHERE ...)."""

    @property
    def given(self) -> Type:
        """The type of what is aggregated; where rows are counted a boolean, which is true."""
        return Type("BOOLEAN") if self.argument is None or self.counts else self.argument.type

    @property
    def counts(self) -> bool:
        """Whether it counts rows, whatever is in them."""
        return self.name == "COUNT" and not self.distinct

    def over(self, expressions: Iterator[Expression]) -> Aggregate:
        """The same with the next expressions in place of its own."""
        argument = None if self.argument is None else next(expressions)
        condition = None if self.condition is None else next(expressions)
        return replace(self, argument=argument, condition=condition)


@dataclass(frozen=True)
class Usage:
    """For the reference."""

    usage: str
    says: str


AGGREGATES: Mapping[str, Usage] = {
    "COUNT": Usage(
        "COUNT(*), COUNT([DISTINCT] a)", "Rows, or those whose a is not null. Never null; BIGINT."
    ),
    "SUM": Usage(
        "SUM([DISTINCT] a)",
        "Of the type of a, where whole numbers overflow as in Java; of a decimal DECIMAL(38, s), "
        "and null where it needs more digits. Null where every a is null.",
    ),
    "AVG": Usage(
        "AVG([DISTINCT] a)",
        "Of the type of a: of whole numbers the fraction is cut. Of a decimal DECIMAL(38, s) with "
        "at least 6 digits of a fraction.",
    ),
    "MIN": Usage("MIN(a)", "The smallest: of numbers, texts and times. -0.0 is before 0.0."),
    "MAX": Usage("MAX(a)", "The largest; NaN is larger than all numbers."),
}


def result_of(name: str, given: Type) -> Type:
    """The type of a result. Raises ValueError where the function does not take the argument."""
    if name == "COUNT":
        return BIGINT
    if name in ("MIN", "MAX"):
        if not (given.numeric or given.kind in _COMPARED):
            raise ValueError(f"the argument is of type {given}; allowed: numbers, texts and times")
        return given
    if not given.numeric:
        raise ValueError(f"the argument is of type {given}; allowed: numbers")
    if given.kind != "DECIMAL":
        return given
    scale = max(6, given.scale) if name == "AVG" else given.scale
    return Type("DECIMAL", MOST_DIGITS, scale)


class Kept(ABC):
    """How one aggregate is kept."""

    @abstractmethod
    def empty(self) -> list[Any]:
        """Of no rows."""

    @abstractmethod
    def add(self, kept: list[Any], value: Any, times: int) -> None:
        """So many rows more (less, below 0) with a plain value that is not null."""

    @abstractmethod
    def result(self, kept: list[Any]) -> Any:
        """The value of the aggregate."""


def kept(call: Aggregate, *, retracts: bool) -> Kept:
    """How an aggregate is kept; `retracts`: rows may go as well as come."""
    if call.name == "COUNT":
        return Count()
    if call.name == ONLY:
        return Only(call)
    if call.name in ("MIN", "MAX"):
        return Extremes(call) if retracts else Extreme(call)
    if call.given.kind in ("FLOAT", "DOUBLE"):
        return FloatSum(call)
    return ExactSum(call)


class Count(Kept):
    """Rows."""

    def empty(self) -> list[Any]:
        """None."""
        return [0]

    def add(self, kept: list[Any], value: Any, times: int) -> None:  # noqa: ARG002
        """Counted."""
        kept[0] += times

    def result(self, kept: list[Any]) -> int:
        """How many."""
        return wrapped("BIGINT", kept[0])


class ExactSum(Kept):
    """SUM and AVG of whole numbers and decimals: how many are not null, and their sum."""

    def __init__(self, call: Aggregate) -> None:
        self._call = call
        self._rounded = rounder(call.type) if call.type.kind == "DECIMAL" else None

    def empty(self) -> list[Any]:
        """None, and 0."""
        return [0, 0]

    def add(self, kept: list[Any], value: int, times: int) -> None:
        """Exactly, however large."""
        kept[0] += times
        kept[1] += value * times

    def result(self, kept: list[Any]) -> Any:
        """Null of no values."""
        count, total = kept
        if count <= 0:
            return None
        average, kind = self._call.name == "AVG", self._call.type
        if self._rounded is not None:
            found = Decimal(total).scaleb(-self._call.given.scale, _EXACT)
            found = _EXACT.divide(found, Decimal(count)) if average else found
            return self._rounded(found)
        if not average:
            return wrapped(kind.kind, total)
        whole = abs(wrapped("BIGINT", total)) // count
        return wrapped(kind.kind, whole if wrapped("BIGINT", total) >= 0 else -whole)


class FloatSum(Kept):
    """SUM and AVG of floating numbers: the sum in the smallest unit, what is no number counted."""

    def __init__(self, call: Aggregate) -> None:
        self._call, self._value = call, value_of(call.given)

    def empty(self) -> list[Any]:
        """Values, sum, NaN, infinities above and below."""
        return [0, 0, 0, 0, 0]

    def add(self, kept: list[Any], value: int, times: int) -> None:
        """Without rounding."""
        number: float = self._value(value)
        kept[0] += times
        if number != number:  # noqa: PLR0124 - NaN
            kept[2] += times
        elif number in (float("inf"), float("-inf")):
            kept[3 if number > 0 else 4] += times
        else:
            top, bottom = number.as_integer_ratio()
            kept[1] += times * (top << _UNIT - (bottom.bit_length() - 1))

    def result(self, kept: list[Any]) -> float | None:
        """Null of no values; rounded once."""
        count, total, nan, above, below = kept
        if count <= 0:
            return None
        divisor = count if self._call.name == "AVG" else 1
        if nan or (above and below):
            found = float("nan")
        elif above or below:
            found = float("inf") if above else float("-inf")
        else:
            found = _quotient(total, divisor)
        return single(found) if self._call.type.kind == "FLOAT" else found


def _quotient(total: int, divisor: int) -> float:
    try:
        return total / (divisor << _UNIT)
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")


class Extreme(Kept):
    """MIN and MAX where rows only come."""

    def __init__(self, call: Aggregate) -> None:
        self._least, self._value = call.name == "MIN", value_of(call.given)

    def empty(self) -> list[Any]:
        """None yet."""
        return [None]

    def add(self, kept: list[Any], value: Any, times: int) -> None:  # noqa: ARG002
        """The smaller, or the larger."""
        known = kept[0]
        if known is None or (value < known if self._least else value > known):
            kept[0] = value

    def result(self, kept: list[Any]) -> Any:
        """Null of no values."""
        return None if kept[0] is None else self._value(kept[0])


class Extremes(Kept):
    """MIN and MAX where rows come and go: how many rows have each value."""

    def __init__(self, call: Aggregate) -> None:
        self._least, self._value = call.name == "MIN", value_of(call.given)

    def empty(self) -> list[Any]:
        """No values: pairs of value and number."""
        return [[]]

    def add(self, kept: list[Any], value: Any, times: int) -> None:
        """Counted; the pairs become a mapping until they are written."""
        if isinstance(kept[0], list):
            kept[0] = dict(kept[0])
        found = kept[0].get(value, 0) + times
        if found > 0:
            kept[0][value] = found
        else:
            kept[0].pop(value, None)

    def result(self, kept: list[Any]) -> Any:
        """Null of no values; leaves pairs, in the order of the values."""
        if isinstance(kept[0], dict):
            kept[0] = sorted(kept[0].items())
        if not kept[0]:
            return None
        return self._value(kept[0][0 if self._least else -1][0])


class Only(Kept):
    """The row of a group that has one; while it has several, as one key may, always the same."""

    def __init__(self, call: Aggregate) -> None:
        self._value = value_of(call.given)

    def empty(self) -> list[Any]:
        """No rows: pairs of row and number."""
        return [[]]

    def add(self, kept: list[Any], value: Any, times: int) -> None:
        """Counted."""
        found = dict(kept[0])
        row = pack(value)
        found[row] = found.get(row, 0) + times
        kept[0] = [[one, number] for one, number in sorted(found.items()) if number > 0]

    def result(self, kept: list[Any]) -> Any:
        """Null of no rows."""
        return self._value(unpack(kept[0][0][0])) if kept[0] else None
