"""Iceberg table -> lazy Spark DataFrame: planned on the driver, read in tasks by PyIceberg.

Deletes and columns added later are PyIceberg's to apply, so that no file is read by its own schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata

from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.connectors.iceberg.connection import CatalogConnection
from dataflow_assets.connectors.iceberg.errors import translate_errors
from dataflow_assets.connectors.iceberg.frames.conditions import condition
from dataflow_assets.connectors.iceberg.table.data_files import WriteTarget, write_target
from dataflow_assets.connectors.iceberg.table.snapshot import total_records
from dataflow_assets.connectors.iceberg.table.stored_rows import live_rows
from dataflow_assets.connectors.iceberg.types import row_schema
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.structs import cast_rows
from dataflow_assets.sdk.table_frames import choose, spark_type
from dataflow_assets.sdk.table_partitions import Partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART_BYTES = 64 * 1024 * 1024
MOST_PARTS = 64
ALWAYS_TRUE = AlwaysTrue()


def read(
    sink: CatalogConnection,
    spark: SparkSession,
    names: Sequence[str] | None,
    held: ExitStack,  # noqa: ARG001 - what other systems need
    partitions: Partitions | None = None,
) -> DataFrame:
    """Implements `TableFrames.read`: the current snapshot, read in tasks."""
    with translate_errors(sink, "read"):
        table = connect(sink).table(sink.identifier)
    if table is None:
        raise PermanentError(f"table {'.'.join(sink.identifier)} does not exist: nothing to read")
    rows = condition(partitions, f"table {'.'.join(sink.identifier)}", table.schema())
    with translate_errors(sink, "plan a read of"):
        tasks = files_with(table, rows)
    return frame_of(table, spark, tasks, names, rows)


def files_with(table: Table, rows: BooleanExpression) -> list[FileScanTask]:
    """The files of the snapshot that is the table's current one here that may have such rows."""
    return list(table.scan(row_filter=rows).plan_files())


def frame_of(
    table: Table,
    spark: SparkSession,
    tasks: Sequence[FileScanTask],
    names: Sequence[str] | None = None,
    rows: BooleanExpression = ALWAYS_TRUE,
) -> DataFrame:
    """A lazy frame of such rows of these files."""
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = readable(table, names)
    groups = tuple(group_files(tasks)) or ((),)
    reader = _IcebergReader(table.metadata, write_target(table), groups, columns, rows)
    count = len(groups)
    return spark.range(0, count, 1, count).mapInArrow(reader, from_arrow_schema(columns))


def describe(sink: CatalogConnection) -> tuple[pa.Schema, int | None]:
    """Implements `TableFrames.describe`, with the columns that rows can fill; from the catalog."""
    with translate_errors(sink, "look at"):
        table = connect(sink).load_table(sink.identifier)
        return row_schema(table.schema()), total_records(table)


def readable(table: Table, names: Sequence[str] | None) -> pa.Schema:
    """The columns in Spark's types: times and the like as text."""
    types = {field.name: field.type for field in row_schema(table.schema())}
    chosen = choose(f"table {'.'.join(table.name())}", names, types)
    return pa.schema([(name, spark_type(types[name])) for name in chosen])


def group_files(tasks: Sequence[FileScanTask]) -> Iterator[tuple[FileScanTask, ...]]:
    """Files for one Spark task each: some megabytes, and not too many tasks."""
    total = sum(task.file.file_size_in_bytes for task in tasks)
    most = max(PART_BYTES, total // MOST_PARTS + 1)
    group: list[FileScanTask] = []
    size = 0
    for task in tasks:
        if group and size + task.file.file_size_in_bytes > most:
            yield tuple(group)
            group, size = [], 0
        group.append(task)
        size += task.file.file_size_in_bytes
    if group:
        yield tuple(group)


@dataclass(frozen=True)
class _IcebergReader:
    metadata: TableMetadata = field(repr=False)
    target: WriteTarget
    groups: tuple[tuple[FileScanTask, ...], ...] = field(repr=False)
    columns: pa.Schema
    rows: BooleanExpression

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                yield from self._read(self.groups[index])

    def _read(self, tasks: tuple[FileScanTask, ...]) -> Iterator[pa.RecordBatch]:
        for table in rows_of(self.metadata, self.target, tasks, self.columns.names, self.rows):
            for batch in table.to_batches():
                yield cast_rows(batch.rename_columns(self.columns.names), self.columns)


def rows_of(
    metadata: TableMetadata,
    target: WriteTarget,
    tasks: Sequence[FileScanTask],
    names: Sequence[str],
    rows: BooleanExpression,
) -> Iterator[pa.Table]:
    """Such rows of these files, about in the table's types; called in tasks."""
    io = load_file_io(dict(target.io), target.location)
    bound = bind(metadata.schema(), rows, case_sensitive=True)
    filtered = [str(metadata.schema().find_column_name(each)) for each in extract_field_ids(bound)]
    only = expression_to_pyarrow(bound) if filtered else None
    for task in tasks:
        for batch in live_rows(metadata, io, task, list(dict.fromkeys([*names, *filtered]))):
            table = pa.Table.from_batches([batch])
            yield (table if only is None else table.filter(only)).select(list(names))
