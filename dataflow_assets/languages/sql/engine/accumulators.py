"""Keeps each aggregate up to date by rows that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from dataflow_assets.languages.sql.engine.aggregates import ONLY, Aggregate
from dataflow_assets.languages.sql.engine.changes import Ints
from dataflow_assets.languages.sql.engine.kept import FlinkKept, sums
from dataflow_assets.languages.sql.engine.numbers import wrap_around
from dataflow_assets.languages.sql.engine.sums import ExactSum, FloatSum
from dataflow_assets.languages.sql.engine.values import pack, unpack, value_of


def accumulator(call: Aggregate, *, retracts: bool) -> FlinkKept:
    """Returns how an aggregate is kept; `retracts`: rows may go as well as come."""
    if call.name == "COUNT":
        return Count()
    if call.name == ONLY:
        return Only(call)
    if call.name in ("MIN", "MAX"):
        return Extremes(call) if retracts else Extreme(call)
    if call.argument_type.kind in ("FLOAT", "DOUBLE"):
        return FloatSum(call)
    return ExactSum(call)


class Count(FlinkKept):
    """Rows."""

    def empty(self) -> list[Any]:
        return [0]

    def add(self, kept: list[Any], value: Any, times: int) -> None:  # noqa: ARG002
        kept[0] += times

    @override
    def fold(self, groups: Ints, count: int, values: Sequence[Any], times: Ints) -> list[list[Any]]:
        there = np.fromiter((one is not None for one in values), np.bool_, len(values))
        return [[one] for one in sums(groups, count, np.where(there, times, 0)).tolist()]

    def result(self, kept: list[Any]) -> int:
        return wrap_around("BIGINT", kept[0])


class Extreme(FlinkKept):
    """MIN and MAX where rows only come."""

    def __init__(self, call: Aggregate) -> None:
        self._least, self._value = call.name == "MIN", value_of(call.argument_type)

    def empty(self) -> list[Any]:
        return [None]

    def add(self, kept: list[Any], value: Any, times: int) -> None:  # noqa: ARG002
        values = kept[0]
        if values is None or (value < values if self._least else value > values):
            kept[0] = value

    @override
    def merge(self, kept: list[Any], folded: list[Any], times: int) -> None:
        if folded[0] is not None:
            self.add(kept, folded[0], times)

    def result(self, kept: list[Any]) -> Any:
        return None if kept[0] is None else self._value(kept[0])


class Extremes(FlinkKept):
    """MIN and MAX where rows come and go: how many rows have each value."""

    def __init__(self, call: Aggregate) -> None:
        self._least, self._value = call.name == "MIN", value_of(call.argument_type)

    def empty(self) -> list[Any]:
        """No values: pairs of value and number."""
        return [[]]

    def add(self, kept: list[Any], value: Any, times: int) -> None:
        """Counted; the pairs become a mapping until they are written."""
        if isinstance(kept[0], list):
            kept[0] = dict(kept[0])
        count = kept[0].get(value, 0) + times
        if count > 0:
            kept[0][value] = count
        else:
            kept[0].pop(value, None)

    @override
    def fold(self, groups: Ints, count: int, values: Sequence[Any], times: Ints) -> list[list[Any]]:
        return _count_values(groups, count, values, times)

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


class Only(FlinkKept):
    """The row of a group that has one; while it has several, as one key may, always the same."""

    def __init__(self, call: Aggregate) -> None:
        self._value = value_of(call.argument_type)

    def empty(self) -> list[Any]:
        """No rows: pairs of row and number."""
        return [[]]

    def add(self, kept: list[Any], value: Any, times: int) -> None:
        self.merge(kept, [[(pack(value), times)]], 1)

    @override
    def fold(self, groups: Ints, count: int, values: Sequence[Any], times: Ints) -> list[list[Any]]:
        rows = [None if value is None else pack(value) for value in values]
        return _count_values(groups, count, rows, times)

    @override
    def merge(self, kept: list[Any], folded: list[Any], times: int) -> None:
        merged = dict(kept[0])
        for row, number in folded[0]:
            merged[row] = merged.get(row, 0) + number * times
        kept[0] = [[one, number] for one, number in sorted(merged.items()) if number > 0]

    def result(self, kept: list[Any]) -> Any:
        return self._value(unpack(kept[0][0][0])) if kept[0] else None


def _count_values(groups: Ints, count: int, values: Sequence[Any], times: Ints) -> list[list[Any]]:
    counts: list[dict[Any, int]] = [{} for _ in range(count)]
    for group, value, number in zip(groups.tolist(), values, times.tolist(), strict=True):
        if value is not None:
            counts[group][value] = counts[group].get(value, 0) + number
    return [[sorted(pair for pair in one.items() if pair[1])] for one in counts]
