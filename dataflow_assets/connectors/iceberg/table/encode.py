"""Rows as they come from the decoder, turned into the columns of a data file.

A value that does not fit refuses its own row, never its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from dataflow_assets.contracts import OFFSET, N, Rejection
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.structs import cast, nulls

_REFUSALS = (pa.ArrowException, ValueError, OverflowError)


def encode(rows: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, list[Rejection]]:
    """The rows in the file's schema, and those that do not fit it."""
    try:
        return _encode(rows, schema), []
    except (RejectedRecord, *_REFUSALS):
        return _bisect(rows, schema)


def _bisect(rows: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, list[Rejection]]:
    good: list[pa.RecordBatch] = []
    refused: list[Rejection] = []
    for part in _parts(rows, schema):
        if isinstance(part, Rejection):
            refused.append(part)
        else:
            good.append(part)
    table = pa.Table.from_batches(good, schema).combine_chunks()
    batches = table.to_batches()
    empty = pa.RecordBatch.from_pylist([], schema)
    return (batches[0] if batches else empty), refused


def _parts(rows: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch | Rejection]:
    """Halves until a half fits or is one row: few steps where few rows are bad."""
    try:
        yield _encode(rows, schema)
    except (RejectedRecord, *_REFUSALS) as error:
        if rows.num_rows == 1:
            yield _rejection(rows, error)
            return
        middle = rows.num_rows // 2
        yield from _parts(rows.slice(0, middle), schema)
        yield from _parts(rows.slice(middle), schema)


def _rejection(row: pa.RecordBatch, error: Exception) -> Rejection:
    reason = error.reason if isinstance(error, RejectedRecord) else str(error).partition("\n")[0]
    index = row.column(N)[0].as_py() if N in row.schema.names else 0
    return Rejection(row.column(OFFSET)[0].as_py(), "sink", reason, None, n=index)


def _encode(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [encode_column(rows, field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def encode_column(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """One column of a data file; null where the rows have no such column.

    Called in tasks, for rows of flows and of DataFrames.

    Raises:
        RejectedRecord: a value does not fit, or is missing where there must be one.
    """
    names, count = rows.schema.names, rows.num_rows
    array = rows.column(field.name) if field.name in names else nulls(count, field.type)
    if not field.nullable and array.null_count:
        raise RejectedRecord("sink", f"column {field.name} is required and got no value")
    if (empty := _empty(array, field)) is not None:
        raise RejectedRecord("sink", f"column {field.name}: {empty} is required and got no value")
    if array.type == field.type:
        return array
    try:
        return cast(array, field.type)
    except _REFUSALS as error:
        reason = f"column {field.name}: {str(error).partition(chr(10))[0]}"
        raise RejectedRecord("sink", reason) from error


def _empty(array: pa.Array, field: pa.Field) -> str | None:
    """The name of a field inside, nested however deep, that must have a value and has none."""
    if not pa.types.is_nested(field.type):
        return None
    for inner, values in _inside(array.drop_null(), field.type):
        if not inner.nullable and values.null_count:
            return str(inner.name)
        if (path := _empty(values, inner)) is not None:
            return path
    return None


def _inside(array: pa.Array, kind: pa.DataType) -> Iterator[tuple[pa.Field, pa.Array]]:
    """The fields of a nested type with their values, of an array without nulls."""
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        flat = array.flatten()
        names = [field.name for field in array.type]
        yield from ((field, flat[names.index(field.name)]) for field in kind if field.name in names)
    elif pa.types.is_map(kind) and pa.types.is_map(array.type):
        first, end = (array.offsets[at].as_py() for at in (0, len(array)))
        yield kind.item_field, array.items[first:end]
    elif pa.types.is_list(kind) and pa.types.is_list(array.type):
        yield kind.value_field, array.flatten()
