"""A part of a table as Arrow, inside a task: row groups in turn, deletes applied, today's columns.

Only whole batches of rows are in memory, so a part may be as long as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.types import PrimitiveType

from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.connectors.iceberg.errors import translate_errors
from dataflow_assets.connectors.iceberg.options import TableSourceOptions
from dataflow_assets.connectors.iceberg.source.parts import IcebergPart, IcebergRange
from dataflow_assets.connectors.iceberg.source.projection import Values, project
from dataflow_assets.connectors.iceberg.source.types import typed_schema
from dataflow_assets.contracts import PartSlice, Slice, metadata_column
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.sdk.place import constant, with_place

ROWS_AT_ONCE = 32_768


def read(
    source: TableSourceOptions, piece: Slice, metadata: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a part; where it holds none, one batch without rows, for its columns.

    Raises PermanentError where a file is gone, TransientError where the store is down.
    """
    assert isinstance(piece, PartSlice)  # noqa: S101 - this source plans nothing else
    part = IcebergPart.parse(piece.part)
    with translate_errors(source, "read"):
        reader = _Reader(_table(source, part))
        columns = metadata if source.incremental_by_snapshot else frozenset()
        rows = 0
        for each in part.ranges:
            for batch in _range_rows(each, reader):
                rows += batch.num_rows
                yield _add_metadata(batch, each, columns)
        if not rows:
            yield pa.RecordBatch.from_pylist([], typed_schema(reader.schema))


def _table(source: TableSourceOptions, part: IcebergPart) -> Table:
    name = ".".join(source.identifier)
    table = connect(source).table(source.identifier)
    if table is None:
        raise PermanentError(f"table {name} was dropped while it was read")
    if str(table.metadata.table_uuid) != part.table:
        raise TransientError(f"table {name} was dropped and recreated while it was read")
    return table


def _range_rows(each: IcebergRange, reader: _Reader) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader.rows(each)
    except FileNotFoundError as error:
        raise PermanentError(
            f"{error.filename or each.path} is gone, a file of snapshot {each.snapshot}: the "
            "snapshot was expired, or its files were removed, while it was read. Its other rows "
            "may be stored. Start from earliest with table: truncate, or from latest without the "
            "rest of it, and keep snapshots longer than a run takes"
        ) from error


def _add_metadata(
    batch: pa.RecordBatch, each: IcebergRange, wanted: frozenset[str]
) -> pa.RecordBatch:
    """With the snapshot as metadata of each row."""
    values = {"snapshot_id": int(each.snapshot), "snapshot_sequence": each.sequence}
    for name in sorted(wanted & values.keys()):
        column = pa.repeat(pa.scalar(values[name], pa.int64()), batch.num_rows)
        batch = batch.append_column(metadata_column(name, pa.int64()), column)
    return batch


@dataclass(frozen=True)
class _IcebergFile:
    """An open data file, its columns told apart by field ids."""

    parquet: pq.ParquetFile
    schema: Schema
    columns: list[str]
    values: Values


class _Reader:
    """Reads files of one table in the columns that it has now."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.schema = table.schema()

    @cached_property
    def _ids(self) -> set[int]:
        return {column.field_id for column in self.schema.fields}

    def rows(self, each: IcebergRange) -> Iterator[pa.RecordBatch]:
        """The rows of a range, in the order of the file."""
        positions = [self._positions(path, each.path) for path in each.deletes]
        deleted = np.unique(np.concatenate([*positions, np.empty(0, np.int64)]))
        with self._table.io.new_input(each.path).open() as stream:
            file = self._open(pq.ParquetFile(stream, pre_buffer=True), each)
            for first, batch in _batches(file, each):
                low, high = np.searchsorted(deleted, [first, first + batch.num_rows])
                numbers = np.delete(
                    np.arange(first, first + batch.num_rows), deleted[low:high] - first
                )
                if len(numbers):
                    kept = batch if len(numbers) == batch.num_rows else batch.take(numbers - first)
                    rows = project(kept, file.schema, self.schema, file.values)
                    place = {"file": constant(each.path, len(numbers)), "row": pa.array(numbers)}
                    yield with_place(rows, place)

    def _open(self, parquet: pq.ParquetFile, each: IcebergRange) -> _IcebergFile:
        names = self._table.metadata.name_mapping()
        schema = pyarrow_to_schema(parquet.schema_arrow, names, format_version=3)
        columns = [column.name for column in schema.fields if column.field_id in self._ids]
        return _IcebergFile(parquet, schema, columns, dict(self._values(each)))

    def _values(self, each: IcebergRange) -> Iterator[tuple[int, Any]]:
        for field_id, digits in each.values.items():
            kind = self.schema.find_type(int(field_id)) if int(field_id) in self._ids else None
            if isinstance(kind, PrimitiveType):
                yield int(field_id), from_bytes(kind, bytes.fromhex(digits))

    def _positions(self, path: str, data: str) -> npt.NDArray[np.int64]:
        """The rows of the data file that a delete file names."""
        with self._table.io.new_input(path).open() as stream:
            if path.endswith(".puffin"):
                vectors = deletion_vectors_from_puffin_file(PuffinFile(stream.read()))
                arrays = [v.to_vector() for v in vectors if v.referenced_data_file == data]
                return np.concatenate([array.to_numpy() for array in arrays])
            rows = pq.read_table(
                stream, columns=["file_path", "pos"], filters=[("file_path", "=", data)]
            )
            positions: npt.NDArray[np.int64] = rows.column("pos").to_numpy()
            return positions


def _batches(file: _IcebergFile, each: IcebergRange) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches of a range with the numbers of their first rows; other row groups stay unread."""
    start = 0
    for group in range(file.parquet.metadata.num_row_groups):
        end = start + file.parquet.metadata.row_group(group).num_rows
        if start < each.high and end > each.low:
            first = start
            for batch in _group(file, group):
                low, high = max(each.low, first), min(each.high, first + batch.num_rows)
                if low < high:
                    yield low, batch.slice(low - first, high - low)
                first += batch.num_rows
                if first >= each.high:
                    break
        start = end


def _group(file: _IcebergFile, group: int) -> Iterator[pa.RecordBatch]:
    if file.columns:
        yield from file.parquet.iter_batches(ROWS_AT_ONCE, [group], file.columns)
        return
    rows = file.parquet.metadata.row_group(group).num_rows  # of a file without any of the columns
    yield pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
