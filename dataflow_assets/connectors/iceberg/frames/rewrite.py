"""Rows that stay, out of files that have others too, into files of their own.

They are read and written in the same task, in the table's own types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata

from dataflow_assets.connectors.iceberg.frames.read import group_files, rows_of
from dataflow_assets.connectors.iceberg.frames.staged import DDL, collect_files, write_files
from dataflow_assets.connectors.iceberg.table.data_files import WriteTarget, write_target
from dataflow_assets.connectors.iceberg.types import file_schema
from dataflow_assets.formats.structs import cast_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rewrite(
    table: Table, spark: SparkSession, rows: BooleanExpression, tasks: Sequence[FileScanTask]
) -> list[DataFile]:
    """New files of such rows of these files.

    Called on the driver; no snapshot names the new files yet.
    """
    groups = tuple(group_files(tasks))
    work = _IcebergRewriter(table.metadata, write_target(table), groups, rows)
    done = spark.range(0, len(groups), 1, len(groups)).mapInArrow(work, DDL)
    return collect_files(done, table)[0]


@dataclass(frozen=True)
class _IcebergRewriter:
    metadata: TableMetadata = field(repr=False)
    target: WriteTarget
    groups: tuple[tuple[FileScanTask, ...], ...] = field(repr=False)
    rows: BooleanExpression

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                names = [column.name for column in self.metadata.schema().fields]
                yield write_files(self.target, names, self._fit(names, self.groups[index]))

    def _fit(self, names: Sequence[str], tasks: Sequence[FileScanTask]) -> Iterator[pa.RecordBatch]:
        schema = file_schema(self.target.iceberg_schema, names)
        for table in rows_of(self.metadata, self.target, tasks, names, self.rows):
            for batch in table.combine_chunks().to_batches():
                yield cast_rows(batch, schema)
