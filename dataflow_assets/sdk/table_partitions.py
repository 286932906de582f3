"""Some partitions of an asset as rows of its table: which columns say so, and by what values.

The IO manager makes them of what Dagster says about a run, on its driver. The frames of each system
make a condition of them, by the types of the table's own columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any

from dataflow_assets.errors import PermanentError

SHOWN = 3
Range = tuple[date | datetime, date | datetime]


@dataclass(frozen=True)
class Window:
    """A stretch of time from `start`, which is in it, to `end`, which is not; both have a zone."""

    start: datetime
    end: datetime


@dataclass(frozen=True)
class Dimension:
    """One column, and what it holds in these partitions: their keys, or points in their windows."""

    column: str
    keys: tuple[str, ...]
    windows: tuple[Window, ...] = ()
    """One for each key, in their order; empty where partitions are no stretches of time."""

    def instants(self) -> list[Range]:
        """The windows, for a column of points in time; those that touch are one."""
        return _join((window.start, window.end) for window in self.windows)

    def clocks(self) -> list[Range]:
        """The same, for a column without a zone: it shows the clock of the partitions' zone.

        Raises PermanentError for an hour that this clock shows twice.
        """
        return _join(map(self._clock, self.windows))

    def days(self) -> list[Range]:
        """The same, for a column of dates. Raises PermanentError for parts of a day."""
        return _join(map(self._days, self.windows))

    def _clock(self, window: Window) -> Range:
        start, end = window.start.replace(tzinfo=None), window.end.replace(tzinfo=None)
        if window.start.replace(fold=1).astimezone(UTC) >= window.end.astimezone(UTC):
            raise PermanentError(
                f"partition_expr: {self.column} has no time zone, and its clock shows the time "
                f"from {start} twice: partition by a column of points in time (with a time zone)"
            )
        return start, end

    def _days(self, window: Window) -> Range:
        if any(each.timetz().replace(tzinfo=None) != time() for each in (window.start, window.end)):
            raise PermanentError(
                f"partition_expr: {self.column} holds dates, and a partition begins at "
                f"{window.start} and ends at {window.end}: partition by a column of points in time"
            )
        return window.start.date(), window.end.date()


@dataclass(frozen=True)
class Partitions:
    """Rows for which all dimensions of any of `products` hold."""

    products: tuple[tuple[Dimension, ...], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of all dimensions."""
        return tuple(dict.fromkeys(each.column for each in self._dimensions()))

    def sql(self, condition: Callable[[Dimension], str]) -> str:
        """A condition in SQL; null counts as false where it is asked `IS NOT TRUE`.

        Args:
            condition: what holds for the column of one dimension.
        """
        products = [" AND ".join(f"({condition(d)})" for d in each) for each in self.products]
        return " OR ".join(f"({product})" for product in products) or "1 = 0"

    def check(self, table: object, known: Iterable[str]) -> None:
        """Raises PermanentError where the table lacks one of the columns."""
        names = list(known)
        if missing := [name for name in self.columns if name not in names]:
            raise PermanentError(
                f"metadata partition_expr: {table} has no column {', '.join(missing)}; it has "
                f"{', '.join(names)}. Name a column; where an expression tells rows apart, "
                "make a column of it"
            )

    def outside(self, table: object, example: Mapping[str, Any]) -> PermanentError:
        """A row that is in none of them would be stored once more by each run.

        Args:
            table: as errors name it.
            example: the columns of such a row.
        """
        row = ", ".join(f"{name} = {value}" for name, value in example.items())
        return PermanentError(
            f"{table}: the frame has rows outside of the partitions of this run ({self}), such as "
            f"{row}: each run would store them once more. Leave only rows of the partition in the "
            "frame (context.partition_key, context.partition_time_window)"
        )

    def __str__(self) -> str:
        keys = list(dict.fromkeys(key for each in self._dimensions() for key in each.keys))
        more = f", ... ({len(keys)} keys)" if len(keys) > SHOWN else ""
        return ", ".join(keys[:SHOWN]) + more or "none"

    def _dimensions(self) -> Iterator[Dimension]:
        return (dimension for product in self.products for dimension in product)


def _join(ranges: Iterable[Range]) -> list[Range]:
    joined: list[Range] = []
    for start, end in sorted(ranges):
        if joined and joined[-1][1] == start:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return joined
