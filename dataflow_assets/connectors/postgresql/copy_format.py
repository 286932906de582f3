"""Rows in PostgreSQL's receive formats as the stream of a binary COPY.

Whole columns are turned at once: those of one width without nulls become a single matrix, which
leads each row; the others follow it with their sizes. Three times cheaper than ADBC's ingestion,
and it serves every type whose receive format we know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_AT_ONCE = 16_384  # rows, which stay in the processor's cache
# The year 2000 in units of the types, and whole numbers of the same width.
_EPOCHS = {
    pa.time64("us"): (pa.int64(), 0),
    pa.date32(): (pa.int32(), 10_957),
    pa.timestamp("us"): (pa.int64(), 946_684_800_000_000),
    pa.timestamp("us", "UTC"): (pa.int64(), 946_684_800_000_000),
}

Values = npt.NDArray[Any]


def in_stream_order(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The columns in the order of the stream: those of one width and without nulls first."""
    return rows.select(sorted(rows.schema.names, key=lambda name: not _leads(rows.column(name))))


def stream(rows: pa.RecordBatch) -> Iterator[bytes | memoryview]:
    """The stream of rows that are `in_stream_order`."""
    leading = sum(map(_leads, rows.columns))
    yield _HEADER
    for start in range(0, rows.num_rows, _AT_ONCE):
        part = rows.slice(start, _AT_ONCE)
        pieces = [_head(part, leading)]
        for name, column in zip(part.schema.names[leading:], part.columns[leading:], strict=True):
            pieces += _pieces(column, name)
        joined = pc.binary_join_element_wise(*pieces, b"")
        _, bounds, data = joined.buffers()
        yield memoryview(data)[: np.frombuffer(bounds, np.int32)[len(joined)]]
    yield _TRAILER


def _leads(column: pa.Array) -> bool:
    return column.null_count == 0 and not _variable(column.type)


def _variable(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _head(rows: pa.RecordBatch, leading: int) -> pa.Array:
    columns = zip(rows.schema.names[:leading], rows.columns[:leading], strict=True)
    return _matrix([_network_values(column, name) for name, column in columns], rows)


def _matrix(columns: Sequence[Values], rows: pa.RecordBatch) -> pa.Array:
    kinds = [(f"{part}{at}", kind) for at, column in enumerate(columns)
             for part, kind in (("size", np.dtype(">i4")), ("value", column.dtype))]  # fmt: skip
    matrix = np.empty(rows.num_rows, [("columns", np.dtype(">i2")), *kinds])
    matrix["columns"] = rows.num_columns
    for at, column in enumerate(columns):
        matrix[f"size{at}"] = column.dtype.itemsize
        matrix[f"value{at}"] = column
    return _pack(matrix)


def _pieces(column: pa.Array, name: str) -> list[pa.Array]:
    if _variable(column.type):
        sizes = pc.binary_length(column).fill_null(-1).to_numpy().astype(">i4")
        return [_pack(sizes), column.cast(pa.binary()).fill_null(b"")]
    values = _network_values(column, name)
    matrix = np.empty(len(column), [("size", ">i4"), ("value", values.dtype)])
    matrix["size"], matrix["value"] = values.dtype.itemsize, values
    return [pc.if_else(column.is_valid(), _pack(matrix), pa.scalar(_NULL, pa.binary()))]


def _pack(values: Values) -> pa.Array:
    width = pa.binary(values.dtype.itemsize)
    buffers = [None, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.FixedSizeBinaryArray.from_buffers(width, len(values), buffers).cast(pa.binary())


def _network_values(column: pa.Array, name: str) -> Values:
    """The column's values in network order; whatever where they are null."""
    kind = column.type
    if pa.types.is_fixed_size_binary(kind):
        _, data = column.buffers()
        return np.frombuffer(data, f"V{kind.byte_width}")[column.offset :][: len(column)]
    if pa.types.is_boolean(kind):
        return np.asarray(column.cast(pa.uint8()).fill_null(0).to_numpy())
    if kind in _EPOCHS:
        whole, epoch = _EPOCHS[kind]
        return _since(column.view(whole).fill_null(0).to_numpy(), epoch, name)
    values = column.fill_null(0).to_numpy()
    return np.asarray(values.astype(values.dtype.newbyteorder(">")))


def _since(values: Values, epoch: int, name: str) -> Values:
    """Since 2000; what is infinite stays so."""
    limits = np.iinfo(values.dtype)
    infinite = (values == limits.max) | (values == limits.min)
    if bool((~infinite & (values < limits.min + epoch)).any()):
        raise PostgresqlFailure("timestamp out of range", "22008", column=name)
    ticks = np.where(infinite, values, values - epoch * ~infinite)
    return np.asarray(ticks.astype(values.dtype.newbyteorder(">")))
