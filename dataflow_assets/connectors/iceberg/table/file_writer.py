"""Rows to data files: as they come, or told apart by partition and sorted.

A table without partitions and order gets long files, written row group by row group. Where it has
either, a writer holds some rows, sorts them and writes one file for each partition value among
them, one after the other: memory and open files stay bounded however many values there are.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from pyiceberg.typedef import Record

from dataflow_assets.connectors.iceberg.table.data_files import ParquetFile, WriteTarget
from dataflow_assets.connectors.iceberg.table.partition_rows import partition_rows
from dataflow_assets.connectors.iceberg.types import file_schema

ROW_GROUP_BYTES = 32 * 1024 * 1024  # of Arrow data; what a writer holds in memory
ARRANGED_BYTES = 2 * ROW_GROUP_BYTES  # the same, where rows are sorted first


def file_writer(target: WriteTarget, name: str, names: list[str], target_bytes: int) -> FileWriter:
    """Returns what writes rows with these columns to files of the table."""
    plain = target.partition_spec.is_unpartitioned() and target.sort_order.is_unsorted
    kind = FileWriter if plain else ArrangedWriter
    return kind(target, name, names, target_bytes)


class FileWriter:
    """Writes rows of one slice to files of about `target_bytes`; opens none without rows."""

    holds = ROW_GROUP_BYTES

    def __init__(self, target: WriteTarget, name: str, names: list[str], target_bytes: int) -> None:
        self.schema = file_schema(target.iceberg_schema, names)
        self._target = target
        self._name = name
        self._target_bytes = target_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._file: ParquetFile | None = None
        self._done: list[str] = []
        self._paths: list[str] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Takes rows in the file's schema; buffers them to row groups of a good size."""
        if rows.num_rows == 0:
            return
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= self.holds:
            self._flush()

    def close(self) -> tuple[str, ...]:
        """Ends the last file; the files as JSON documents."""
        self._flush()
        self._finish()
        return tuple(self._done)

    def abort(self) -> None:
        """Drops every file: nobody else has been told of them."""
        file, self._file = self._file, None
        with suppress(Exception):  # what has failed before is the error to tell
            if file is not None:
                file.close()
        for path in self._paths:
            with suppress(Exception):
                self._target.file_io().delete(path)
        self._paths, self._done, self._waiting = [], [], []

    def _flush(self) -> None:
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting, self.schema)
            self._waiting, self._waiting_bytes = [], 0
            self._store(rows)

    def _store(self, rows: pa.Table) -> None:
        file = self._file = self._file or self._open()
        file.write(rows)
        if file.bytes >= self._target_bytes:
            self._finish()

    def _open(self, partition: Record | None = None) -> ParquetFile:
        file = ParquetFile(self._target, self.schema, self._name, partition)
        self._paths.append(file.path)
        return file

    def _finish(self, order_id: int = 0) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
            self._done.append(file.document(order_id))


class ArrangedWriter(FileWriter):
    """One file for each partition value among the rows it holds, sorted by the table's order."""

    holds = ARRANGED_BYTES

    def _store(self, rows: pa.Table) -> None:
        for partition, part in partition_rows(rows, self._target):
            self._file = self._open(partition)
            self._file.write(part)
            self._finish(self._target.sort_order.order_id)
