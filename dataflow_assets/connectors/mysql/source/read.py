"""Rows as PyMySQL has them, texts and whole numbers, as columns of Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from dataflow_assets.connectors.mysql.client import MysqlClient, Row
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.sql_table import Binds, Selection

BATCH_ROWS = 10_000
_ZERO = "0000-00-00"


def read(
    client: MysqlClient, query: str, binds: Binds, columns: Sequence[Selection]
) -> Iterator[pa.RecordBatch]:
    """Yields the answer to a query of these columns. Raises PermanentError for no date."""
    schema = pa.schema([each.field for each in columns])
    for rows in client.stream(query, binds, BATCH_ROWS):
        yield batch_of(rows, schema)


def batch_of(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    values = zip(*rows, strict=True)
    arrays = [_array(each, field) for each, field in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], field: pa.Field) -> pa.Array:
    kind = field.type
    if pa.types.is_integer(kind):
        return pa.array(values, kind)
    if pa.types.is_boolean(kind):
        return pa.array(values, pa.uint64()).cast(kind)
    if pa.types.is_binary(kind):
        return pa.array(values, kind)
    texts = pa.array(values, pa.string())
    return texts if pa.types.is_string(kind) else _times(texts, field)


def _times(texts: pa.Array, field: pa.Field) -> pa.Array:
    """Numbers and times of texts; days that are none are looked at only where there is one."""
    kind = field.type
    zone = pa.types.is_timestamp(kind) and kind.tz is not None
    plain = pa.timestamp(kind.unit) if zone else kind
    try:
        return texts.cast(plain).cast(kind)
    except pa.ArrowInvalid:
        if not pa.types.is_temporal(kind):
            raise
    kept = [None if (text or _ZERO).startswith(_ZERO) else text for text in texts.to_pylist()]
    try:
        return pa.array(kept, pa.string()).cast(plain).cast(kind)
    except pa.ArrowInvalid as error:
        raise PermanentError(
            f"column {field.name} holds a day that is none ({error}): correct the row, or give a "
            "`query` that selects the column as text"
        ) from None
