"""Spark DataFrame -> Iceberg table, for assets that users write themselves.

Files are written in tasks through PyIceberg; the catalog is asked on the driver only, and every
write is one commit. Connection settings travel by closure, so that Spark needs no catalog of its
own and no secret ever stands in its configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata

from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.connectors.iceberg.errors import translate_errors
from dataflow_assets.connectors.iceberg.frames.conditions import condition, others
from dataflow_assets.connectors.iceberg.frames.read import frame_of, group_files, rows_of
from dataflow_assets.connectors.iceberg.frames.replace import Replacement, append, mixed_files
from dataflow_assets.connectors.iceberg.frames.staged import (
    DDL,
    Outside,
    as_read,
    collect_files,
    stage,
    write_files,
)
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.table import create_table
from dataflow_assets.connectors.iceberg.table.commit import Committer
from dataflow_assets.connectors.iceberg.table.data_files import WriteTarget, write_target
from dataflow_assets.connectors.iceberg.table_catalog import TableCatalog
from dataflow_assets.connectors.iceberg.types import file_schema, row_schema, table_schema
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.structs import cast_rows
from dataflow_assets.sdk.table_frames import (
    Mode,
    null_in_key,
    refuse_unknown_columns,
    several_of_one_key,
)
from dataflow_assets.sdk.table_partitions import Partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write(
    sink: TableSinkOptions,
    frame: DataFrame,
    mode: Mode,
    key: Sequence[str],
    partitions: Partitions | None = None,
) -> int:
    """Implements `TableFrames.write`, in one commit.

    `upsert` writes the whole table again, `overwrite` of partitions the files that have rows of
    these and of others.
    """
    catalog = connect(sink)
    table = _table(catalog, sink, frame)
    with translate_errors(sink, "open"):
        committer = Committer(catalog, table)
    if mode == "upsert":
        return _upsert(sink, committer, frame, key)
    if partitions is not None:
        return _overwrite_some(sink, committer, frame, partitions)
    files, rows = stage(frame, table)
    if mode == "append":
        append(sink, committer, files)
    else:
        Replacement(sink, committer, AlwaysTrue()).run(lambda _: [], files)
    return rows


def _overwrite_some(
    sink: TableSinkOptions, committer: Committer, frame: DataFrame, partitions: Partitions
) -> int:
    """Rows of others, in files that have both, are written again."""
    table = committer.table
    replaced = condition(partitions, _name(table), table.schema())
    stay = others(partitions, replaced)

    def rewritten_files(tasks: Sequence[FileScanTask]) -> list[DataFile]:
        again = mixed_files(tasks)
        return rewrite(committer.table, frame.sparkSession, stay, again) if again else []

    files, rows = stage(frame, table, Outside(partitions, stay))
    Replacement(sink, committer, replaced).run(rewritten_files, files)
    return rows


def _upsert(
    sink: TableSinkOptions, committer: Committer, frame: DataFrame, key: Sequence[str]
) -> int:
    # Computed once: a source that is read again may have other rows by then.
    rows = as_read(frame, committer.table).localCheckpoint()
    table = _name(committer.table)
    if rows.where(" OR ".join(f"{_quote(name)} IS NULL" for name in key)).limit(1).count():
        raise null_in_key(table, key)
    if rows.groupBy(*map(_quote, key)).count().where("count > 1").limit(1).count():
        raise several_of_one_key(table)

    def rewritten_files(tasks: Sequence[FileScanTask]) -> list[DataFile]:
        here = committer.table
        _refuse_loss(here)
        stored = frame_of(here, frame.sparkSession, tasks)
        return stage(_merge(rows, stored, key), here)[0]

    Replacement(sink, committer, AlwaysTrue()).run(rewritten_files)
    return rows.count()


def _refuse_loss(table: Table) -> None:
    """All rows go through Spark, which has no type for some columns."""
    columns = row_schema(table.schema()).names
    if lost := [field.name for field in table.schema().fields if field.name not in columns]:
        raise PermanentError(
            f"{_name(table)}: mode upsert writes the table again, and would lose the values of "
            f"column {', '.join(lost)}, which a DataFrame has no type for: use mode append, or "
            "overwrite with partition_expr"
        )


def _quote(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _merge(frame: DataFrame, stored: DataFrame, key: Sequence[str]) -> DataFrame:
    """The frame's rows, and the table's that it does not replace.

    Columns that the frame lacks keep the values of the rows that are replaced.
    """
    kept = stored.join(frame.select(*map(_quote, key)), list(key), "left_anti")
    lacks = [_quote(name) for name in stored.columns if name not in frame.columns]
    old = stored.select(*map(_quote, key), *lacks)
    return kept.unionByName(frame.join(old, list(key), "left") if lacks else frame)


def _name(table: Table) -> str:
    return f"table {'.'.join(table.name())}"


def _table(catalog: TableCatalog, sink: TableSinkOptions, frame: DataFrame) -> Table:
    from pyspark.sql.pandas.types import to_arrow_schema

    columns: pa.Schema = to_arrow_schema(frame.schema)
    with translate_errors(sink, "open"):
        table = catalog.table(sink.identifier)
        if table is None:
            create_table.ensure_namespace(catalog, sink)
            schema = table_schema(map(_optional, columns))
            table = catalog.make(sink.identifier, schema, {})
    create_table.check(table)
    refuse_unknown_columns(_name(table), columns.names, table.schema().column_names)
    return table


def _optional(column: pa.Field) -> pa.Field:
    """With all that is inside: how Spark has computed a value says nothing about later ones."""
    kind = column.type
    if pa.types.is_struct(kind):
        kind = pa.struct(map(_optional, kind))
    elif pa.types.is_list(kind):
        kind = pa.list_(_optional(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_field, _optional(kind.item_field))
    return column.with_type(kind).with_nullable(True)


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
