"""Many rows at once, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from dataflow_assets.languages.sql.engine.expressions import Expression, FlinkColumn
from dataflow_assets.languages.sql.engine.function import Evaluate


@dataclass(frozen=True)
class FlinkColumns:
    """Rows by their columns, in the order of the table; each is as long as there are rows."""

    count: int
    values: Sequence[Sequence[Any]]

    @cached_property
    def rows(self) -> list[tuple[Any, ...]]:
        return list(zip(*self.values, strict=True)) if self.values else [()] * self.count

    def of(self, expression: Expression | None, evaluate: Evaluate) -> Sequence[Any]:
        """The values of an expression. Raises what `evaluate` raises for one of the rows.

        Args:
            expression: None where `evaluate` is made of several.
            evaluate: computes the value of one row.
        """
        if isinstance(expression, FlinkColumn):
            return self.values[expression.at]
        return list(map(evaluate, self.rows))

    def take(self, places: Sequence[int]) -> Self:
        if len(places) == self.count:
            return self
        return type(self)(len(places), [take_places(one, places) for one in self.values])


def take_places(values: Sequence[Any], places: Sequence[int]) -> Sequence[Any]:
    return values if len(places) == len(values) else [values[at] for at in places]


def spread_out(values: Sequence[Any], places: Sequence[int], count: int) -> list[Any]:
    """Values at their places among so many; None elsewhere."""
    spread: list[Any] = [None] * count
    for at, value in zip(places, values, strict=True):
        spread[at] = value
    return spread
