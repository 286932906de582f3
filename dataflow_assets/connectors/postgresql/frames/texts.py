"""A frame's columns as PostgreSQL reads them from CSV, and the types of a table made for them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.frames.frame_table import is_bytes


def sql_type(kind: pa.DataType) -> str:
    """The type of a column that is made for a frame's."""
    for test, name in (
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_int64, "bigint"),
        (pa.types.is_int32, "integer"),
        (pa.types.is_integer, "smallint"),
        (pa.types.is_float32, "real"),
        (pa.types.is_floating, "double precision"),
        (pa.types.is_date, "date"),
        (pa.types.is_time, "time"),
        (pa.types.is_duration, "interval"),
        (pa.types.is_nested, "jsonb"),
        (is_bytes, "bytea"),
    ):
        if test(kind):
            return name
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    return "text"


def texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        _intervals(column) if pa.types.is_duration(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _intervals(column: pa.Array) -> pa.Array:
    counts = column.cast(pa.duration("us")).cast(pa.int64())
    return pc.binary_join_element_wise(counts.cast(pa.string()), " microseconds", "")
