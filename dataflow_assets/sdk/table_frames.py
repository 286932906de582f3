"""Whole tables as Spark DataFrames, for the assets that users write beside flows.

Who calls what, always on the driver of a run:

- The code location, when it loads, gives every sink class that is a `FrameSink` an IO manager.
- The IO manager calls `FrameSink.frames` once for each table that an asset takes or returns.
- It calls `TableFrames.read` once for each input; Spark reads later, in tasks.
- It calls `TableFrames.write` and then `describe` once for each output.
"""

from __future__ import annotations

import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from dataflow_assets.contracts import Sink
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.free_names import free_stem
from dataflow_assets.sdk.table_partitions import Partitions
from dataflow_assets.spark.errors import task_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_STAGED = pa.schema([("attempt", pa.string()), ("rows", pa.int64())])
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
Mode = Literal["append", "overwrite", "upsert"]
STAGES = "_dataflow_frame_"
"""Begins the names of tables in which rows wait beside their target."""
LEFT_SECONDS = 7 * 86_400  # after which nobody writes any more who made such a table


@dataclass(frozen=True)
class TableFrames:
    """One table of one connection, whether it exists yet or not; secrets are in place."""

    read: Callable[[SparkSession, Sequence[str] | None, ExitStack, Partitions | None], DataFrame]
    """The named columns, or all of them, of the rows of some partitions, or of all rows, as a lazy
    frame of one state of the table. What must stay open until the frame was read (a snapshot, say)
    goes on the stack, which is closed with the run. Raises PermanentError where there is no table
    or no such column, TransientError where it cannot be reached."""
    write: Callable[[DataFrame, Mode, Sequence[str], Partitions | None], int]
    """Writes the rows of a frame and counts them: readers see all of them or none. `overwrite`
    replaces all rows, or those of the given partitions, and then refuses a frame with others;
    `append` replaces none, `upsert` those of the same key, whose columns follow: columns that the
    frame lacks keep their values, and a key with null is refused. Creates a missing table from the
    frame's columns. Raises PermanentError for what does not fit the table, TransientError where the
    table cannot be reached, or where another writer was quicker."""
    describe: Callable[[], tuple[pa.Schema, int | None]]
    """The table's columns, as flows show them, and its rows in all; None where their number is not
    known exactly. Raises PermanentError where there is no table."""


class FrameSink(Sink):
    """A sink into tables, which users' assets also read and write as DataFrames.

    The type of the sink is the key of the IO manager (`io_manager_key="iceberg"`).
    """

    @abstractmethod
    def frames(self, namespace: str | None, table: str) -> TableFrames:
        """Another table of this sink's connection.

        Called by the IO manager on the driver of a run, once for each table. Reaches nothing. The
        docstring of an override describes the IO manager in Dagster.

        Args:
            namespace: schema, database or namespace; None for the connection's usual one.
            table: its name, without quotes.

        Returns:
            The table's functions; the sink's own table plays no part in them.
        """

    def names_of_secrets(self) -> tuple[str | None, str] | None:
        """Namespace and table of the sink itself, where only Secrets know them; None elsewhere.

        Called as `frames` is, for a table that a flow writes; secrets are in place.
        """
        own = self.resolved_address()
        return None if own == self.address() else (own.namespace, own.name)


def choose(
    table: object, names: Sequence[str] | None, known: Collection[str]
) -> Sequence[str] | Collection[str]:
    """The columns that are read.

    Called by `TableFrames.read` on the driver, once the table is known.

    Args:
        table: as errors name it.
        names: the columns that are asked for; None: all of them.
        known: the table's columns.

    Raises:
        PermanentError: the table has no such column.
    """
    if absent := [name for name in names or () if name not in known]:
        raise PermanentError(
            f"metadata columns: {table} has no column {', '.join(absent)}; it has "
            f"{', '.join(known)}"
        )
    return known if names is None else names


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a frame has values of another one.

    Spark has no unsigned numbers, no times of day, no nanoseconds and no more than 38 digits.
    """
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time(kind) or pa.types.is_decimal256(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(spark_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(spark_type(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(spark_type(kind.key_type), spark_type(kind.item_type))
    return _WIDER.get(kind, kind)


def several_of_one_key(table: object) -> PermanentError:
    """The error of a frame that is upserted, and has two rows of one key."""
    return PermanentError(
        f"{table}: the frame has several rows of one key: say which of them counts"
    )


def null_in_key(table: object, key: Sequence[str]) -> PermanentError:
    """The error of a frame that is upserted, and has a row whose key has no value."""
    return PermanentError(
        f"{table}: the frame has rows with null in the key ({', '.join(key)}): no later run could "
        "find them again, and each would add them once more; fill the key or leave these rows out"
    )


def refuse_null_keys(table: object, batch: pa.RecordBatch, key: Sequence[str]) -> None:
    """Raises PermanentError for a row without a value in the key of an upsert."""
    if any(batch.column(name).null_count for name in key):
        raise null_in_key(table, key)


def stage_name() -> str:
    """Makes a name for a table beside the target that says when it was made.

    Called by `TableFrames.write` on the driver.
    """
    return f"{STAGES}{int(time.time())}_{uuid.uuid4().hex[:8]}"


def left_behind(tables: Iterable[str]) -> list[str]:
    """Chooses the tables that processes have left which were killed in a write.

    Called by `TableFrames.write` on the driver, which drops them.

    Args:
        tables: names that begin with STAGES, as `stage_name` makes them.
    """
    before = time.time() - LEFT_SECONDS
    made = {name: name.removeprefix(STAGES).partition("_")[0] for name in tables}
    return [name for name, at in made.items() if at.isdecimal() and int(at) < before]


def attempt_column(names: Iterable[str]) -> str:
    """The column of a stage that says which attempt of a task has put the row there.

    Called by `TableFrames.write` on the driver, with the frame's columns, none of which it is.
    """
    return free_stem(names, "_attempt")


def refuse_unknown_columns(table: object, names: Iterable[str], known: Collection[str]) -> None:
    """Refuses a frame with columns that its table lacks.

    Called by `TableFrames.write` on the driver, once the table is known.

    Args:
        table: as errors name it.
        names: the frame's columns.
        known: the table's columns.

    Raises:
        PermanentError: a column of the frame is not in the table.
    """
    if missing := [name for name in names if name not in known]:
        raise PermanentError(
            f"{table} has no column {', '.join(missing)}; it has {', '.join(known)}. Alter or drop "
            f"the table, or leave the column out of the frame"
        )


def map_batches(frame: DataFrame, work: Work, schema: str | StructType) -> DataFrame:
    """The frame's rows through a function, whatever its columns are called.

    `mapInArrow` takes a dot in a column's name for the way into a struct: the columns travel under
    plain names. Called by `TableFrames.write` on the driver; the function runs in tasks.

    Args:
        frame: any frame.
        work: called once in each task, with the batches of its partition under their own names.
        schema: of what the function yields; a text is DDL.

    Returns:
        A lazy frame of what the function yields.
    """
    names = tuple(frame.columns)
    plain = frame.toDF(*(f"c{number}" for number in range(len(names))))
    return plain.mapInArrow(_Named(work, names), schema)


@dataclass(frozen=True)
class _Named:
    work: Work
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.work(batch.rename_columns(list(self.names)) for batch in batches)


def stage(
    frame: DataFrame, put: Callable[[Iterator[pa.RecordBatch]], None]
) -> tuple[list[str], int]:
    """Puts the frame's rows into a table beside the target, each marked by its task's attempt.

    Spark may run a task twice: only rows of the attempts that are returned count. Called by
    `TableFrames.write` on the driver, once.

    Args:
        frame: any frame.
        put: called once in each attempt of a task, with its batches; the last column is the
            `attempt_column`.
            Batches are not empty, but there may be none.

    Returns:
        The attempts that have succeeded, and how many rows they have put there.

    Raises:
        DataflowError: what a task has raised.
    """
    from pyspark.errors import PySparkException

    marked_rows = _Marked(put, attempt_column(frame.columns))
    try:
        done = map_batches(frame, marked_rows, "attempt string, rows bigint").toArrow()
    except PySparkException as error:
        raise task_failure(error) from error
    return done.column("attempt").to_pylist(), sum(done.column("rows").to_pylist())


@dataclass(frozen=True)
class _Marked:
    put: Callable[[Iterator[pa.RecordBatch]], None]
    mark: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt, counts = uuid.uuid4().hex, [0]

        def marked_rows() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if rows := batch.num_rows:
                    counts.append(rows)
                    yield batch.append_column(self.mark, pa.array([attempt] * rows))

        self.put(marked_rows())
        yield pa.record_batch([[attempt], [sum(counts)]], _STAGED)
