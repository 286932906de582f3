"""Rows as COPY wants them.

Binary: jsonb with its version byte, uuid as 16 bytes, packed digits. Text: PostgreSQL's own way to
write arrays, bytes, and the times that Arrow writes otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.connectors.postgresql.errors import Failure
from dataflow_assets.connectors.postgresql.sink.encode_arrays import literals
from dataflow_assets.connectors.postgresql.sink.encode_numerics import numerics
from dataflow_assets.connectors.postgresql.sink.encode_times import moments
from dataflow_assets.connectors.postgresql.table.table import TYPE
from dataflow_assets.contracts import KIND

_JSONB_VERSION = b"\x01"
_DASHES = (8, 13, 18, 23)
_CANONICAL = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


def copy_rows(
    link: Link, place: tuple[str | None, str], fields: Sequence[pa.Field], rows: pa.RecordBatch
) -> None:
    """Copies the rows' columns of these names, typed as the table's. Raises Failure."""
    arrays = [rows.column(field.name) for field in fields]
    plain = [field.with_nullable(True) for field in fields]
    found = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(plain))
    link.load(*place, binary(found) if link.binary else textual(found))


def binary(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in PostgreSQL's own receive formats; names unchanged."""
    arrays = [_array(rows.column(i), field) for i, field in enumerate(rows.schema)]
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)


def textual(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in PostgreSQL's text formats, as far as CSV would not write them itself."""
    arrays = [_written(rows.column(i), field) for i, field in enumerate(rows.schema)]
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)


def _written(values: pa.Array, field: pa.Field) -> pa.Array:
    metadata = field.metadata or {}
    if metadata.get(TYPE, b"").endswith(b"[]") and metadata.get(KIND) == b"json":
        return literals(values, field)
    if pa.types.is_binary(field.type):
        texts = [None if v is None else rf"\x{v.hex()}" for v in values.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_temporal(field.type):
        return moments(values)
    return values


def _array(values: pa.Array, field: pa.Field) -> pa.Array:
    declared = (field.metadata or {}).get(TYPE, b"")
    if declared == b"jsonb":
        return pc.binary_join_element_wise(_JSONB_VERSION, values.cast(pa.binary()), b"")
    if declared.partition(b"(")[0] == b"numeric":
        return numerics(values, field.name)
    return uuids(values, field.name) if declared == b"uuid" else values


def uuids(values: pa.Array, name: str) -> pa.Array:
    """UUID text as 16 bytes each: at once where it is canonical, else one by one."""
    text = values.drop_null()
    canonical = pc.match_substring_regex(text, _CANONICAL)
    if len(text) and pc.all(canonical).as_py():
        return _from_hex(values, text)
    return pa.array([_parsed(value, name) for value in values.to_pylist()], pa.binary(16))


def _from_hex(values: pa.Array, text: pa.Array) -> pa.Array:
    letters = np.frombuffer(_joined(text), dtype=np.uint8).reshape(-1, 36)
    digits = np.delete(letters, _DASHES, axis=1)
    nibbles = np.where(digits >= 97, digits - 87, np.where(digits >= 65, digits - 55, digits - 48))
    packed = (nibbles[:, 0::2] << 4 | nibbles[:, 1::2]).astype(np.uint8)
    whole = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(text), [None, pa.py_buffer(packed.tobytes())]
    )
    if not values.null_count:
        return whole
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    places = pa.array(np.cumsum(valid) - 1, mask=~valid)
    return whole.take(places)


def _joined(text: pa.Array) -> bytes:
    joined: bytes = (
        pc.binary_join(pa.ListArray.from_arrays([0, len(text)], text), "")[0].as_py().encode()
    )
    return joined


def _parsed(value: str | None, name: str) -> bytes | None:
    if value is None:
        return None
    try:
        return UUID(value).bytes
    except ValueError:
        message = f'invalid input syntax for type uuid: "{value}"'
        raise Failure(message, "22P02", column=name) from None
