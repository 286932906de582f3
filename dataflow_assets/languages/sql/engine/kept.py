"""The state of an aggregate: a list that msgpack can write.

It depends on which rows are there, never on their order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from dataflow_assets.languages.sql.engine.changes import Ints


class FlinkKept(ABC):
    """Makes, folds and reads the state of one aggregate."""

    @abstractmethod
    def empty(self) -> list[Any]: ...

    @abstractmethod
    def add(self, kept: list[Any], value: Any, times: int) -> None:
        """So many rows more (less, below 0) with a plain value that is not null."""

    @abstractmethod
    def result(self, kept: list[Any]) -> Any: ...

    def fold(self, groups: Ints, count: int, values: Sequence[Any], times: Ints) -> list[list[Any]]:
        """Returns what many changed rows come to, for each of their groups.

        Args:
            groups: the number of each row's group.
            count: how many groups there are.
            values: of each row, plain; None where the row does not count.
            times: how many rows more each stands for; below 0 less.

        Returns:
            By the number of the group what `merge` takes.
        """
        folded = [self.empty() for _ in range(count)]
        for group, value, number in zip(groups.tolist(), values, times.tolist(), strict=True):
            if value is not None:
                self.add(folded[group], value, number)
        return folded

    def merge(self, kept: list[Any], folded: list[Any], times: int) -> None:
        """Adds what `fold` has made of rows, so many times."""
        for at, number in enumerate(folded):
            kept[at] += number * times


def sums(groups: Ints, count: int, numbers: Ints) -> Ints:
    totals = np.zeros(count, np.int64)
    np.add.at(totals, groups, numbers)
    return totals
