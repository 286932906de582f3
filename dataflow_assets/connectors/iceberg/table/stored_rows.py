"""The rows of a data file in the columns that its table has now, piece by piece.

Columns are found by their field ids: renamed ones under their new names, widened ones widened,
those that the file lacks as nulls. A file may be as long as it likes: only a piece is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import index_by_id
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from dataflow_assets.connectors.iceberg.types import FIELD_ID, file_schema
from dataflow_assets.formats.structs import nulls, struct_of

ROWS_AT_ONCE = 32_768


class IcebergUnreadable(Exception):
    """The file cannot be read so: it has no field ids, or lacks a column that must have values."""


def live_rows(
    metadata: TableMetadata, io: FileIO, task: FileScanTask, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a file that are not deleted, with these columns, about in the table's types.

    PyIceberg reads them, which knows about deletes; but it makes empty lists and maps of those that
    are null where structs are in them (0.12).
    """
    columns = metadata.schema().select(*names)
    schema = file_schema(columns, list(names))
    if any(map(_holds_structs, schema.types)) and not task.delete_files:
        try:
            # Fields that are not null where a file lacks them: PyIceberg knows their values.
            defaults = {
                n for n, one in index_by_id(columns).items() if one.initial_default is not None
            }
            specs = metadata.partition_specs
            fields_with_values = frozenset(
                defaults | {one.source_id for spec in specs for one in spec.fields}
            )
            batches = stored_rows(io, task.file.file_path, schema, fields_with_values)
            yield from (batch.select(list(names)) for batch in batches)
        except IcebergUnreadable:
            pass
        else:
            return
    for batch in ArrowScan(metadata, io, columns, AlwaysTrue()).to_record_batches([task]):
        yield batch.select(list(names))


def _holds_structs(kind: pa.DataType) -> bool:
    if not pa.types.is_nested(kind):
        return False
    inside = [field.type for field in _inside(kind)]
    many = not pa.types.is_struct(kind)
    return (many and any(map(pa.types.is_struct, inside))) or any(map(_holds_structs, inside))


def stored_rows(
    io: FileIO, path: str, schema: pa.Schema, needed: frozenset[int] = frozenset()
) -> Iterator[pa.RecordBatch]:
    """Batches in the schema, which has field ids. Raises Unreadable before the first one.

    `needed`: by their ids, fields that the file must have.
    """
    with io.new_input(path).open() as stream:
        parquet = pq.ParquetFile(stream)
        held = {_id(field): field for field in parquet.schema_arrow}
        for field in schema:
            _check(held.get(_id(field)), field, needed)
        names = [held[_id(field)].name for field in schema if _id(field) in held]
        for group in range(parquet.num_row_groups):
            for batch in parquet.iter_batches(ROWS_AT_ONCE, [group], names):
                arrays = dict(zip(map(_id, batch.schema), batch.columns, strict=True))
                columns = [_align(arrays.get(_id(f)), f, batch.num_rows) for f in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _id(field: pa.Field) -> int:
    number = (field.metadata or {}).get(FIELD_ID)
    if number is None:
        raise IcebergUnreadable(f"{field.name} has no field id")
    return int(number)


def _check(have: pa.Field | None, want: pa.Field, needed: frozenset[int]) -> None:
    """Looks at all that is inside, before anything is read."""
    if have is None:
        if not want.nullable or _id(want) in needed:
            raise IcebergUnreadable(f"{want.name} is missing")
        return
    if pa.types.is_nested(want.type):
        held = {_id(inner): inner for inner in _inside(have.type)}
        for inner in _inside(want.type):
            _check(held.get(_id(inner)), inner, needed)


def _inside(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(at) for at in range(kind.num_fields)]


def _align(array: pa.Array | None, want: pa.Field, rows: int) -> pa.Array:
    kind = want.type
    if array is None:
        return nulls(rows, kind)
    if pa.types.is_struct(kind):
        held = dict(zip(map(_id, _inside(array.type)), array.flatten(), strict=True))
        members = _inside(want.type)
        arrays = [_align(held.get(_id(one)), one, len(array)) for one in members]
        return struct_of(arrays, members, array.is_null())
    if pa.types.is_list(kind):
        offsets, first, count = _bounds(array)
        values = _align(array.values.slice(first, count), kind.value_field, count)
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=array.is_null())
    if pa.types.is_map(kind):
        offsets, first, count = _bounds(array)
        keys = _align(array.keys.slice(first, count), kind.key_field, count)
        items = _align(array.items.slice(first, count), kind.item_field, count)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=array.is_null())
    return array if array.type == kind else array.cast(kind)


def _bounds(array: pa.ListArray | pa.MapArray) -> tuple[pa.Array, int, int]:
    """Offsets from 0 on, and the part of the values that they are about."""
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return pc.subtract(array.offsets, array.offsets[0]).cast(pa.int32()), first, last - first
