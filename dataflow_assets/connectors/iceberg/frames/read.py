"""Iceberg table -> lazy Spark DataFrame: planned on the driver, read in tasks by PyIceberg.

Deletes and columns added later are PyIceberg's to apply, so that no file is read by its own schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata

from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.connectors.iceberg.connection import CatalogConnection
from dataflow_assets.connectors.iceberg.errors import translated
from dataflow_assets.connectors.iceberg.table.data_files import WriteTarget, write_target
from dataflow_assets.connectors.iceberg.table.snapshot import total_records
from dataflow_assets.connectors.iceberg.table.stored_rows import live_rows
from dataflow_assets.connectors.iceberg.types import row_schema
from dataflow_assets.errors import PermanentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART_BYTES = 64 * 1024 * 1024
MOST_PARTS = 64


def read(
    sink: CatalogConnection,
    spark: SparkSession,
    names: Sequence[str] | None,
    held: ExitStack,  # noqa: ARG001 - what other systems need
) -> DataFrame:
    """As `TableFrames.read`: the current snapshot, read in tasks."""
    with translated(sink, "read"):
        table = connect(sink).table(sink.identifier)
    if table is None:
        raise PermanentError(f"table {'.'.join(sink.identifier)} does not exist: nothing to read")
    return frame_of(table, sink, spark, names)


def frame_of(
    table: Table, sink: CatalogConnection, spark: SparkSession, names: Sequence[str] | None = None
) -> DataFrame:
    """A lazy frame of the snapshot that is the table's current one here."""
    from pyspark.sql.pandas.types import from_arrow_schema

    with translated(sink, "plan a read of"):
        tasks = list(table.scan().plan_files())
    columns = _readable(table, names)
    groups = tuple(_groups(tasks)) or ((),)
    reader = _Reader(table.metadata, write_target(table), groups, columns)
    count = len(groups)
    return spark.range(0, count, 1, count).mapInArrow(reader, from_arrow_schema(columns))


def describe(sink: CatalogConnection) -> tuple[pa.Schema, int | None]:
    """As `TableFrames.describe`, of the columns that rows can fill; from the catalog."""
    with translated(sink, "look at"):
        table = connect(sink).load_table(sink.identifier)
        return row_schema(table.schema()), total_records(table)


def _readable(table: Table, names: Sequence[str] | None) -> pa.Schema:
    """The columns in Spark's types: times and the like as text."""
    fields = [f for f in row_schema(table.schema()) if names is None or f.name in names]
    text = pa.string()
    return pa.schema([(f.name, text if pa.types.is_time(f.type) else f.type) for f in fields])


def _groups(tasks: list[FileScanTask]) -> Iterator[tuple[FileScanTask, ...]]:
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
class _Reader:
    metadata: TableMetadata = field(repr=False)
    target: WriteTarget
    groups: tuple[tuple[FileScanTask, ...], ...] = field(repr=False)
    columns: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                yield from self._read(self.groups[index])

    def _read(self, tasks: tuple[FileScanTask, ...]) -> Iterator[pa.RecordBatch]:
        io = load_file_io(dict(self.target.io), self.target.location)
        for task in tasks:
            for batch in live_rows(self.metadata, io, task, self.columns.names):
                table = pa.Table.from_batches([batch])
                yield from table.cast(self.columns).combine_chunks().to_batches()
