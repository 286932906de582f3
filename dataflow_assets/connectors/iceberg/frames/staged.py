"""A frame's rows as files of a table that no snapshot names yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from dataflow_assets.connectors.iceberg.frames.read import readable
from dataflow_assets.connectors.iceberg.table.data_files import WriteTarget, data_file, write_target
from dataflow_assets.connectors.iceberg.table.encode import encode_column
from dataflow_assets.connectors.iceberg.table.far_times import far_times
from dataflow_assets.connectors.iceberg.table.file_writer import file_writer
from dataflow_assets.connectors.iceberg.types import file_schema, row_schema
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.columns import fit, refusal
from dataflow_assets.formats.structs import cast_rows
from dataflow_assets.sdk.table_frames import map_batches
from dataflow_assets.sdk.table_partitions import Partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TARGET_BYTES = 128 * 1024 * 1024
_RESULT = pa.schema([("files", pa.list_(pa.string())), ("rows", pa.int64())])
DDL = "files array<string>, rows bigint"


@dataclass(frozen=True)
class Outside:
    """Rows that a frame must not have: those outside of its partitions."""

    partitions: Partitions
    rows: BooleanExpression

    def check(self, table: str, target: WriteTarget, batch: pa.RecordBatch) -> None:
        bound = bind(target.iceberg_schema, self.rows, case_sensitive=True)
        wrong = pa.Table.from_batches([batch]).filter(expression_to_pyarrow(bound))
        if wrong.num_rows:
            example = wrong.slice(0, 1).select(list(self.partitions.columns)).to_pylist()[0]
            raise self.partitions.outside(table, example)


def stage(
    frame: DataFrame, table: Table, outside: Outside | None = None
) -> tuple[list[DataFile], int]:
    """The files, and how many rows they have.

    Called on the driver; they are written in tasks.

    Args:
        frame: its columns are columns of the table.
        table: where the files are put.
        outside: what is refused.
    """
    name = f"table {'.'.join(table.name())}"
    target = write_target(table)
    writer = _Writer(name, target, _columns(target, frame.columns), outside)
    return collect_files(map_batches(frame, writer, DDL), table)


def collect_files(done: DataFrame, table: Table) -> tuple[list[DataFile], int]:
    """The files, and their rows, once the tasks are done; `done` is of DDL."""
    staged = done.toArrow()
    texts = [text for files in staged.column("files").to_pylist() for text in files or ()]
    return [data_file(text, table) for text in texts], sum(staged.column("rows").to_pylist())


@dataclass(frozen=True)
class _Writer:
    table: str
    target: WriteTarget
    names: tuple[str, ...]
    outside: Outside | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield write_files(self.target, self.names, map(self._check, batches))

    def _check(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        fitted = _fit_batch(self.table, self.target, batch, self.names)
        if self.outside is not None:
            self.outside.check(self.table, self.target, fitted)
        return fitted


def _fit_batch(
    table: str, target: WriteTarget, batch: pa.RecordBatch, names: Iterable[str]
) -> pa.RecordBatch:
    """Rows of a frame as files have these columns.

    Raises PermanentError for a value that is not kept, or is missing where there must be one.
    """
    held = set(batch.schema.names)
    shape = pa.schema([one for one in row_schema(target.iceberg_schema) if one.name in held])
    rows = fit(table, batch.select(shape.names), shape)
    schema = file_schema(target.iceberg_schema, names)
    try:
        columns = [encode_column(rows, field) for field in schema]
    except RejectedRecord as error:
        raise refusal(table, error.reason) from None
    for field, column in zip(schema, columns, strict=True):
        if len(far_times(column)):
            raise refusal(table, f"column {field.name}: its times must be in the years 1 to 9999")
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _columns(target: WriteTarget, given: Collection[str]) -> tuple[str, ...]:
    """The frame's, and those that no file may lack: required ones, and what tells files apart."""
    sources = {field.source_id for field in target.partition_spec.fields}
    sources |= {field.source_id for field in target.sort_order.fields}
    return tuple(
        column.name
        for column in target.iceberg_schema.fields
        if column.name in given
        or column.field_id in sources
        or (column.required and column.initial_default is None)
    )


def as_read(frame: DataFrame, table: Table) -> DataFrame:
    """The frame's rows as they are read once they are stored; called on the driver.

    Of two values that are stored as one, such as spellings of a UUID, Spark would make two keys;
    and stored numbers beside others would become fractions.
    """
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    frame_schema: pa.Schema = to_arrow_schema(frame.schema)
    stored = file_schema(table.schema(), frame.columns)
    if all(frame_schema.field(column.name).type == column.type for column in stored):
        return frame
    columns = readable(table, frame.columns)
    reader = _AsRead(f"table {'.'.join(table.name())}", write_target(table), columns)
    return map_batches(frame, reader, from_arrow_schema(columns))


@dataclass(frozen=True)
class _AsRead:
    table: str
    target: WriteTarget
    columns: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = _fit_batch(self.table, self.target, batch, self.columns.names)
            yield cast_rows(rows, self.columns)


def write_files(
    target: WriteTarget, names: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> pa.RecordBatch:
    """Rows in files of their own, none of which stays where an error is raised; called in tasks."""
    files, rows = file_writer(target, "frame", list(names), TARGET_BYTES), 0
    try:
        for batch in batches:
            files.write(batch)
            rows += batch.num_rows
        done = files.close()
    except BaseException:
        files.abort()
        raise
    return pa.record_batch([[list(done)], [rows]], _RESULT)
