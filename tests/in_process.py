"""Spark's place in flows that do not need Spark: the same pass, run in the test's own process.

A `Frame` records `range`, `mapInArrow` and `select`, and `toArrow` runs them here, one partition
after the other, the last one first: nothing may rest on their order. Functions are pickled, and
loaded for each partition, as Spark does, so that what cannot travel fails here too. Whatever else
is asked for (a Kafka reader, a join) is asked of Spark itself, which is started only then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 7  # Spark cuts what it hands to Python into batches too
Batches = Iterator[pa.RecordBatch]
Function = Callable[[Iterable[pa.RecordBatch]], Batches]


@dataclass(frozen=True)
class Frame:
    """A row of each `partition`, or of one all `rows`, and what is done with them."""

    spark: Callable[[], SparkSession]
    rows: int
    partitions: int
    calls: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    def mapInArrow(self, function: Function, schema: object) -> Frame:  # noqa: N802 - Spark's name
        """What the function makes of each partition."""
        return replace(self, calls=(*self.calls, ("mapInArrow", (function, schema))))

    def select(self, *columns: str) -> Frame:
        """These columns."""
        return replace(self, calls=(*self.calls, ("select", columns)))

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        """Runs it. Any error reaches the caller as Spark's client would raise it."""
        try:
            results = [
                batch for index in range(self.partitions)[::-1] for batch in self._run(index)
            ]
        except Exception as error:
            raise PySparkException(f"{type(error).__name__}: {error}") from error
        return pa.Table.from_batches(results)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        method = getattr(self.on_spark(), name)
        return lambda *given: method(*map(_on_spark, given))

    def on_spark(self) -> DataFrame:
        """The same on Spark."""
        frame: Any = self.spark().range(0, self.rows, 1, self.partitions)
        for name, given in self.calls:
            frame = getattr(frame, name)(*given)
        return cast("DataFrame", frame)

    def _run(self, index: int) -> Batches:
        ids = [index] if self.partitions == self.rows else [*range(self.rows)]
        batches: Batches = iter([pa.record_batch({"id": ids})])
        for name, given in self.calls:
            batches = _mapped(given[0], batches) if name == "mapInArrow" else _of(given, batches)
        return batches


def _mapped(function: Function, batches: Batches) -> Batches:
    pickled = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    loaded: Function = cloudpickle.loads(pickled)
    return loaded(_cut(batches))


def _cut(batches: Batches) -> Batches:
    for batch in batches:
        for first in range(0, max(1, batch.num_rows), BATCH_ROWS):
            yield batch.slice(first, BATCH_ROWS)


def _of(columns: tuple[str, ...], batches: Batches) -> Batches:
    return (batch.select(list(columns)) for batch in batches)


def _on_spark(given: Any) -> Any:
    return given.on_spark() if isinstance(given, Frame) else given


class Session:
    """What a flow takes for its Spark session; Spark's own is made when it is first needed."""

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        self._spark = spark

    def range(self, *bounds: int) -> Any:
        """A frame of this process, where each row is a partition of its own, or all are in one."""
        if len(bounds) == 4 and bounds[0] == 0 and bounds[3] in (1, bounds[1]):
            return Frame(self._spark, bounds[1], bounds[3])
        return self._spark().range(*bounds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark(), name)
