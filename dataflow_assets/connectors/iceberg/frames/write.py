"""Spark DataFrame -> Iceberg table, for assets that users write themselves.

Files are written in tasks through PyIceberg; the catalog is asked on the driver only, and every
write is one commit. Connection settings travel by closure, so that Spark needs no catalog of its
own and no secret ever stands in its configuration.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg import exceptions as ice
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.connectors.iceberg.errors import translated
from dataflow_assets.connectors.iceberg.frames.read import frame_of
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.table import create_table
from dataflow_assets.connectors.iceberg.table.commit import FRAME
from dataflow_assets.connectors.iceberg.table.data_files import WriteTarget, data_file, write_target
from dataflow_assets.connectors.iceberg.table.file_writer import file_writer
from dataflow_assets.connectors.iceberg.table_catalog import TableCatalog
from dataflow_assets.connectors.iceberg.types import table_schema
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.formats.structs import cast_rows
from dataflow_assets.sdk.table_frames import Mode, map_batches, refuse_unknown_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TARGET_BYTES = 128 * 1024 * 1024
ATTEMPTS = 5
_RESULT = pa.schema([("files", pa.list_(pa.string())), ("rows", pa.int64())])
_DDL = "files array<string>, rows bigint"


def write(sink: TableSinkOptions, frame: DataFrame, mode: Mode, key: Sequence[str]) -> int:
    """As `TableFrames.write`, in one commit; `upsert` writes the whole table again."""
    catalog = connect(sink)
    table = _table(catalog, sink, frame)
    if mode == "upsert":
        rows = frame.count()
        frame, head = _merged(frame, table, sink, key), _head(table)
        _publish(catalog, sink, table, _stage(frame, table)[0], overwrite=True, head=head)
        return rows
    files, rows = _stage(frame, table)
    _publish(catalog, sink, table, files, overwrite=mode == "overwrite")
    return rows


def _table(catalog: TableCatalog, sink: TableSinkOptions, frame: DataFrame) -> Table:
    from pyspark.sql.pandas.types import to_arrow_schema

    columns: pa.Schema = to_arrow_schema(frame.schema)
    with translated(sink, "open"):
        table = catalog.table(sink.identifier)
        if table is None:
            create_table.ensure_namespace(catalog, sink)
            # Spark takes columns for nullable or not by how they were computed: that is no rule.
            nullable = [column.with_nullable(True) for column in columns]
            table = catalog.made(sink.identifier, table_schema(nullable), {})
    create_table.check(table)
    refuse_unknown_columns(
        f"table {'.'.join(table.name())}", columns.names, table.schema().column_names
    )
    with translated(sink, "open"):
        return catalog.begun(table)


def _stage(frame: DataFrame, table: Table) -> tuple[list[DataFile], int]:
    """Writes files that no snapshot names yet."""
    writer = _Writer(write_target(table), tuple(frame.columns))
    done = map_batches(frame, writer, _DDL).toArrow()
    texts = [text for files in done.column("files").to_pylist() for text in files or ()]
    return [data_file(text, table) for text in texts], sum(done.column("rows").to_pylist())


@dataclass(frozen=True)
class _Writer:
    target: WriteTarget
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files, rows = file_writer(self.target, "frame", list(self.names), TARGET_BYTES), 0
        try:
            for batch in batches:
                files.write(cast_rows(batch, files.schema))
                rows += batch.num_rows
            done = files.close()
        except BaseException:
            files.abort()
            raise
        yield pa.record_batch([[list(done)], [rows]], _RESULT)


def _publish(  # noqa: PLR0913 - one commit's whole story
    catalog: TableCatalog,
    sink: TableSinkOptions,
    table: Table,
    files: list[DataFile],
    *,
    overwrite: bool,
    head: int | None = None,
) -> None:
    """One commit. Who lost a race tries again on the new head, an upsert's caller from the start.

    After an answer that never came, the table itself tells whether the commit happened.
    """
    token = uuid.uuid4().hex
    for attempt in range(ATTEMPTS):
        try:
            with translated(sink, "commit to"):
                _commit(table, files, token, overwrite=overwrite)
        except (TransientError, PermanentError) as error:
            with translated(sink, "load"):
                table = catalog.load_table(sink.identifier)
            if _committed(table, token):
                return
            lost = isinstance(error.__cause__, ice.CommitFailedException)
            moved = head is not None and _head(table) != head
            if not lost or moved or attempt + 1 == ATTEMPTS:
                raise
            time.sleep(0.2 * 2**attempt)
        else:
            return


def _commit(table: Table, files: list[DataFile], token: str, *, overwrite: bool) -> None:
    properties = {FRAME: token}
    with table.transaction() as transaction:
        if overwrite and table.current_snapshot() is not None:
            transaction.delete(AlwaysTrue(), snapshot_properties=properties)
        with transaction.update_snapshot(snapshot_properties=properties).fast_append() as append:
            for file in files:
                append.append_data_file(file)


def _committed(table: Table, token: str) -> bool:
    return any(s.summary is not None and s.summary.get(FRAME) == token for s in table.snapshots())


def _head(table: Table) -> int | None:
    snapshot = table.current_snapshot()
    return snapshot.snapshot_id if snapshot else None


def _merged(
    frame: DataFrame, table: Table, sink: TableSinkOptions, key: Sequence[str]
) -> DataFrame:
    """The frame's rows, and the table's that it does not replace."""
    if frame.groupBy(*key).count().where("count > 1").limit(1).count():
        raise PermanentError(
            f"table {'.'.join(table.name())}: the frame has several rows of one key "
            f"({', '.join(key)}): say which of them counts"
        )
    stored = frame_of(table, sink, frame.sparkSession)
    kept = stored.join(frame.select(*key), list(key), "left_anti").select(*stored.columns)
    return kept.unionByName(frame, allowMissingColumns=True)
