"""The rows of a data file in the columns that its table has now, piece by piece.

Columns are found by their field ids: renamed ones under their new names, widened ones widened,
those that the file lacks as nulls. A file may be as long as it likes: only a piece is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table import Table

from dataflow_assets.connectors.iceberg.types import FIELD_ID

ROWS_AT_ONCE = 32_768


class Unreadable(Exception):
    """The file cannot be read so: it has no field ids, or lacks a column that must have values."""


def stored_rows(table: Table, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches in the schema, which has field ids. Raises Unreadable before the first one."""
    with table.io.new_input(path).open() as stream:
        parquet = pq.ParquetFile(stream)
        held = {_id(field): field for field in parquet.schema_arrow}
        for field in schema:
            _check(held.get(_id(field)), field)
        names = [held[_id(field)].name for field in schema if _id(field) in held]
        for group in range(parquet.num_row_groups):
            for batch in parquet.iter_batches(ROWS_AT_ONCE, [group], names):
                found = dict(zip(map(_id, batch.schema), batch.columns, strict=True))
                columns = [_aligned(found.get(_id(f)), f, batch.num_rows) for f in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _id(field: pa.Field) -> int:
    number = (field.metadata or {}).get(FIELD_ID)
    if number is None:
        raise Unreadable(f"{field.name} has no field id")
    return int(number)


def _check(have: pa.Field | None, want: pa.Field) -> None:
    """Looks at all that is inside, before anything is read."""
    if have is None:
        if not want.nullable:
            raise Unreadable(f"{want.name} is missing")
        return
    if pa.types.is_nested(want.type):
        held = {_id(inner): inner for inner in _inside(have.type)}
        for inner in _inside(want.type):
            _check(held.get(_id(inner)), inner)


def _inside(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(at) for at in range(kind.num_fields)]


def _aligned(array: pa.Array | None, want: pa.Field, rows: int) -> pa.Array:
    kind = want.type
    if array is None:
        return pa.nulls(rows, kind)
    if pa.types.is_struct(kind):
        return _struct(array, want)
    if pa.types.is_list(kind):
        offsets, first, count = _bounds(array)
        values = _aligned(array.values.slice(first, count), kind.value_field, count)
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=array.is_null())
    if pa.types.is_map(kind):
        offsets, first, count = _bounds(array)
        keys = _aligned(array.keys.slice(first, count), kind.key_field, count)
        items = _aligned(array.items.slice(first, count), kind.item_field, count)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=array.is_null())
    return array if array.type == kind else array.cast(kind)


def _struct(array: pa.StructArray, want: pa.Field) -> pa.Array:
    held = dict(zip(map(_id, _inside(array.type)), array.flatten(), strict=True))
    members = _inside(want.type)
    arrays = [_aligned(held.get(_id(one)), one, len(array)) for one in members]
    return pa.StructArray.from_arrays(arrays, fields=members, mask=array.is_null())


def _bounds(array: pa.ListArray | pa.MapArray) -> tuple[pa.Array, int, int]:
    """Offsets from 0 on, and the part of the values that they are about."""
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return pc.subtract(array.offsets, array.offsets[0]).cast(pa.int32()), first, last - first
