"""How each aggregate is kept up to date by rows that come and go.

What is kept of an aggregate is a list that msgpack can write. It depends on which rows are there,
never on their order: also the sum of floating numbers, which is kept without rounding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from dataflow_assets.sql.aggregates import ONLY, Aggregate
from dataflow_assets.sql.casts import rounder, single, wrapped
from dataflow_assets.sql.values import pack, unpack, value_of

Ints = npt.NDArray[np.int64]
_EXACT = Context(prec=120)
_UNIT = 1074
"""The smallest floating number is 2 to the power of minus this."""
_MOST = 2**63 - 1


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

    def fold(self, groups: Ints, count: int, values: Sequence[Any], times: Ints) -> list[list[Any]]:
        """What many changed rows come to, for each of their groups.

        Args:
            groups: the number of each row's group.
            count: how many groups there are.
            values: of each row, plain; None where the row does not count.
            times: how many rows more each stands for; below 0 less.

        Returns:
            By the number of the group what `merge` takes.
        """
        found = [self.empty() for _ in range(count)]
        for group, value, number in zip(groups.tolist(), values, times.tolist(), strict=True):
            if value is not None:
                self.add(found[group], value, number)
        return found

    def merge(self, kept: list[Any], folded: list[Any], times: int) -> None:
        """Adds what `fold` has made of rows, so many times."""
        for at, number in enumerate(folded):
            kept[at] += number * times


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

    @override
    def fold(self, groups: Ints, count: int, values: Sequence[Any], times: Ints) -> list[list[Any]]:
        there = np.fromiter((one is not None for one in values), np.bool_, len(values))
        return [[one] for one in _sums(groups, count, np.where(there, times, 0)).tolist()]

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

    @override
    def fold(self, groups: Ints, count: int, values: Sequence[Any], times: Ints) -> list[list[Any]]:
        """In columns, unless a sum may need more than 64 bits."""
        try:
            given = pa.array(values, pa.int64())
        except (OverflowError, pa.ArrowInvalid):
            return super().fold(groups, count, values, times)
        numbers = given.fill_null(0).to_numpy()
        if not _fits(numbers, times):
            return super().fold(groups, count, values, times)
        there = given.is_valid().to_numpy(zero_copy_only=False)
        counted = _sums(groups, count, np.where(there, times, 0))
        totals = _sums(groups, count, numbers * times)
        return [[*one] for one in zip(counted.tolist(), totals.tolist(), strict=True)]

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

    @override
    def merge(self, kept: list[Any], folded: list[Any], times: int) -> None:
        if folded[0] is not None:
            self.add(kept, folded[0], times)

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

    @override
    def fold(self, groups: Ints, count: int, values: Sequence[Any], times: Ints) -> list[list[Any]]:
        return _counted(groups, count, values, times)

    @override
    def merge(self, kept: list[Any], folded: list[Any], times: int) -> None:
        for value, number in folded[0]:
            self.add(kept, value, number * times)

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
        self.merge(kept, [[(pack(value), times)]], 1)

    @override
    def fold(self, groups: Ints, count: int, values: Sequence[Any], times: Ints) -> list[list[Any]]:
        rows = [None if value is None else pack(value) for value in values]
        return _counted(groups, count, rows, times)

    @override
    def merge(self, kept: list[Any], folded: list[Any], times: int) -> None:
        found = dict(kept[0])
        for row, number in folded[0]:
            found[row] = found.get(row, 0) + number * times
        kept[0] = [[one, number] for one, number in sorted(found.items()) if number > 0]

    def result(self, kept: list[Any]) -> Any:
        """Null of no rows."""
        return self._value(unpack(kept[0][0][0])) if kept[0] else None


def _counted(groups: Ints, count: int, values: Sequence[Any], times: Ints) -> list[list[Any]]:
    """By group pairs of value and number, which is below 0 where more rows go than come."""
    found: list[dict[Any, int]] = [{} for _ in range(count)]
    for group, value, number in zip(groups.tolist(), values, times.tolist(), strict=True):
        if value is not None:
            found[group][value] = found[group].get(value, 0) + number
    return [[sorted(pair for pair in one.items() if pair[1])] for one in found]


def _sums(groups: Ints, count: int, numbers: Ints) -> Ints:
    """By group the sum of its numbers."""
    found = np.zeros(count, np.int64)
    np.add.at(found, groups, numbers)
    return found


def _fits(numbers: Ints, times: Ints) -> bool:
    """Whether no sum of numbers, each so many times, needs more than 64 bits."""
    if not len(numbers):
        return True
    largest = max(abs(int(numbers.min())), abs(int(numbers.max())))
    return bool(largest * sum(map(abs, times.tolist())) <= _MOST)
