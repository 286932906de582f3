"""Spark's place in flows that do not need Spark: the same pass, run in the test's own process.

A `Frame` knows what the pass and the merge of an Iceberg table ask of Spark's frames, and `toArrow`
runs it here, one partition after the other, the last one first: nothing may rest on their order.
Functions are pickled, and loaded for each partition, as Spark does, so that what cannot travel
fails here too. Whatever else is asked for (a Kafka reader, a frame of rows) is asked of Spark
itself, which is started only then.
"""

from __future__ import annotations

import re
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

BATCH_ROWS = 7  # Spark cuts what it hands to Python into batches too
Batches = Iterator[pa.RecordBatch]
Function = Callable[[Iterable[pa.RecordBatch]], Batches]
TYPES = {"binary": pa.binary(), "int": pa.int32(), "long": pa.int64()}
JOINS = {"left": "left outer", "left_semi": "left semi"}
# What is not in a file has a number below 0, by its key.
BUCKET = re.compile(r"coalesce\((\w+), -1 - pmod\(hash\((\w+)\), (\d+)\)\) as (\w+)")


@dataclass(frozen=True)
class Frame:
    """`partitions` gives each partition when it is run; `on_spark` is the same on Spark."""

    partitions: Callable[[], list[Batches]]
    on_spark: Callable[[], DataFrame]
    names: tuple[str, ...] | None = None
    """Its columns; None where only Spark knows them."""

    @property
    def columns(self) -> list[str]:
        """Their names."""
        return self.on_spark().columns if self.names is None else list(self.names)

    def toDF(self, *names: str) -> Frame:  # noqa: N802 - Spark's name
        """The same under other names."""
        return self._each(
            lambda batches: (batch.rename_columns(list(names)) for batch in batches),
            "toDF",
            *names,
            names=names,
        )

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        """Runs it. Any error reaches the caller as Spark's client would raise it."""
        try:
            return pa.Table.from_batches(
                [batch for partition in self.partitions()[::-1] for batch in partition]
            )
        except Exception as error:
            raise PySparkException("".join(traceback.format_exception(error))) from error

    def count(self) -> int:
        """Its rows."""
        return cast("int", self.toArrow().num_rows)

    def mapInArrow(self, function: Function, schema: Any) -> Frame:  # noqa: N802 - Spark's name
        """What the function makes of each partition."""

        def mapped(batches: Batches) -> Batches:
            return _mapped(function, batches, schema)

        names = tuple(schema.names) if isinstance(schema, StructType) else None
        return self._each(mapped, "mapInArrow", function, schema, names=names)

    def select(self, *columns: str) -> Frame:
        """These columns."""
        return self._each(
            lambda batches: (batch.select(list(columns)) for batch in batches), "select", *columns
        )

    def selectExpr(self, *expressions: str) -> Any:  # noqa: N802 - Spark's name
        """A number of `BUCKET`, and columns."""
        bucket, *columns = expressions
        if not (asked := BUCKET.fullmatch(bucket)):
            return self.on_spark().selectExpr(*expressions)
        return self._each(
            lambda batches: (_numbered(batch, asked, columns) for batch in batches),
            "selectExpr",
            *expressions,
        )

    def join(self, other: Frame, on: str, how: str) -> Frame:
        """One partition with the rows of both that have the same key."""
        return Frame(
            lambda: [_batches(self.toArrow().join(other.toArrow(), on, join_type=JOINS[how]))],
            lambda: self.on_spark().join(other.on_spark(), on, how),
        )

    def hint(self, name: str) -> Frame:
        """How Spark is to join it."""
        return Frame(self.partitions, lambda: self.on_spark().hint(name))

    def limit(self, rows: int) -> Frame:
        """The first of the rows."""
        return Frame(
            lambda: [_batches(self.toArrow().slice(0, rows))], lambda: self.on_spark().limit(rows)
        )

    def coalesce(self, partitions: int) -> Frame:
        """All in one partition."""
        assert partitions == 1
        return Frame(lambda: [_batches(self.toArrow())], lambda: self.on_spark().coalesce(1))

    def repartition(self, partitions: int, column: str) -> Frame:
        """Rows of one value are in one partition."""
        return Frame(
            lambda: _parted(self.toArrow(), partitions, column),
            lambda: self.on_spark().repartition(partitions, column),
        )

    def sortWithinPartitions(self, *columns: str) -> Frame:  # noqa: N802 - Spark's name
        """Each partition in the order of these columns."""
        order = [(column, "ascending") for column in columns]

        def ordered(batches: Batches) -> Batches:
            return _batches(pa.Table.from_batches(batches).sort_by(order))

        return self._each(ordered, "sortWithinPartitions", *columns)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        method = getattr(self.on_spark(), name)
        return lambda *given: method(*map(_on_spark, given))

    def _each(
        self,
        here: Callable[[Batches], Batches],
        name: str,
        *given: Any,
        names: tuple[str, ...] | None = None,
    ) -> Frame:
        return Frame(
            lambda: [here(partition) for partition in self.partitions()],
            lambda: getattr(self.on_spark(), name)(*given),
            names,
        )


def _mapped(function: Function, batches: Batches, schema: object) -> Batches:
    pickled = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    loaded: Function = cloudpickle.loads(pickled)
    made = loaded(_cut(batches))
    first = next(made, None)
    if first is None:
        first = _nothing(schema)
    if first is not None:
        yield first
    yield from made


def _nothing(schema: object) -> pa.RecordBatch | None:
    """No rows, where it is clear of what: a frame to join has columns."""
    if isinstance(schema, StructType):
        return _empty(to_arrow_schema(schema))
    columns = [column.split() for column in schema.split(",")] if isinstance(schema, str) else []
    if not columns or not all(len(each) == 2 and each[1] in TYPES for each in columns):
        return None
    return _empty(pa.schema([(name, TYPES[kind]) for name, kind in columns]))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)


def _cut(batches: Batches) -> Batches:
    for batch in batches:
        for first in range(0, max(1, batch.num_rows), BATCH_ROWS):
            yield batch.slice(first, BATCH_ROWS)


def _batches(table: pa.Table) -> Batches:
    return iter(table.to_batches() or [_empty(table.schema)])


def _numbered(batch: pa.RecordBatch, asked: re.Match[str], columns: list[str]) -> pa.RecordBatch:
    first, key, count, name = asked.groups()
    hashed = [-1 - zlib.crc32(value) % int(count) for value in batch.column(key).to_pylist()]
    bucket = pc.coalesce(batch.column(first), pa.array(hashed, pa.int32()))
    return pa.record_batch([bucket, *map(batch.column, columns)], [name, *columns])


def _parted(table: pa.Table, partitions: int, column: str) -> list[Batches]:
    number = pa.array([value % partitions for value in table.column(column).to_pylist()])
    return [_batches(table.filter(pc.equal(number, each))) for each in range(partitions)]


def _on_spark(given: Any) -> Any:
    return given.on_spark() if isinstance(given, Frame) else given


class Session:
    """What a flow takes for its Spark session; Spark's own is made when it is first needed."""

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        self._spark = spark

    def range(self, *bounds: int) -> Any:
        """A frame of this process, where each row is a partition of its own, or all are in one."""
        if len(bounds) != 4 or bounds[0] != 0 or bounds[3] not in (1, bounds[1]):
            return self._spark().range(*bounds)
        rows, count = bounds[1], bounds[3]
        ids = [[each] for each in range(rows)] if count == rows else [[*range(rows)]]
        return Frame(
            lambda: [iter([pa.record_batch({"id": each})]) for each in ids],
            lambda: self._spark().range(*bounds),
        )

    def addTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        """Jobs of this thread can be interrupted; those of this process cannot."""

    def removeTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        """No more."""

    def interruptTag(self, tag: str) -> list[str]:  # noqa: N802 - Spark's name
        """Nothing was interrupted."""
        del tag
        return []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark(), name)
