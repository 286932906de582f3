"""SUM and AVG: kept exactly, also of floating numbers, and rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from dataflow_assets.languages.sql.engine.aggregates import Aggregate
from dataflow_assets.languages.sql.engine.changes import Ints
from dataflow_assets.languages.sql.engine.kept import FlinkKept, sums
from dataflow_assets.languages.sql.engine.numbers import rounder, single, wrap_around
from dataflow_assets.languages.sql.engine.values import value_of

_EXACT = Context(prec=120)
_UNIT = 1074
"""The smallest floating number is 2 to the power of minus this."""
_MOST = 2**63 - 1


class ExactSum(FlinkKept):
    """SUM and AVG of whole numbers and decimals: how many are not null, and their sum."""

    def __init__(self, call: Aggregate) -> None:
        self._call = call
        self._rounded = rounder(call.type) if call.type.kind == "DECIMAL" else None

    def empty(self) -> list[Any]:
        return [0, 0]

    def add(self, kept: list[Any], value: int, times: int) -> None:
        kept[0] += times
        kept[1] += value * times

    @override
    def fold(self, groups: Ints, count: int, values: Sequence[Any], times: Ints) -> list[list[Any]]:
        """In columns, unless a sum may need more than 64 bits."""
        try:
            addends = pa.array(values, pa.int64())
        except (OverflowError, pa.ArrowInvalid):
            return super().fold(groups, count, values, times)
        numbers = addends.fill_null(0).to_numpy()
        if not _fits(numbers, times):
            return super().fold(groups, count, values, times)
        there = addends.is_valid().to_numpy(zero_copy_only=False)
        counted = sums(groups, count, np.where(there, times, 0))
        totals = sums(groups, count, numbers * times)
        return [[*one] for one in zip(counted.tolist(), totals.tolist(), strict=True)]

    def result(self, kept: list[Any]) -> Any:
        count, total = kept
        if count <= 0:
            return None
        average, kind = self._call.name == "AVG", self._call.type
        if self._rounded is not None:
            number = Decimal(total).scaleb(-self._call.argument_type.scale, _EXACT)
            number = _EXACT.divide(number, Decimal(count)) if average else number
            return self._rounded(number)
        if not average:
            return wrap_around(kind.kind, total)
        whole = abs(wrap_around("BIGINT", total)) // count
        return wrap_around(kind.kind, whole if wrap_around("BIGINT", total) >= 0 else -whole)


class FloatSum(FlinkKept):
    """SUM and AVG of floating numbers: the sum in the smallest unit, what is no number counted."""

    def __init__(self, call: Aggregate) -> None:
        self._call, self._value = call, value_of(call.argument_type)

    def empty(self) -> list[Any]:
        """Values, sum, NaN, infinities above and below."""
        return [0, 0, 0, 0, 0]

    def add(self, kept: list[Any], value: int, times: int) -> None:
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
        count, total, nan, above, below = kept
        if count <= 0:
            return None
        divisor = count if self._call.name == "AVG" else 1
        if nan or (above and below):
            number = float("nan")
        elif above or below:
            number = float("inf") if above else float("-inf")
        else:
            number = _quotient(total, divisor)
        return single(number) if self._call.type.kind == "FLOAT" else number


def _quotient(total: int, divisor: int) -> float:
    try:
        return total / (divisor << _UNIT)
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")


def _fits(numbers: Ints, times: Ints) -> bool:
    if not len(numbers):
        return True
    largest = max(abs(int(numbers.min())), abs(int(numbers.max())))
    return bool(largest * sum(map(abs, times.tolist())) <= _MOST)
