"""Values that Spark has no type for: times of day and uuids are text there."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import time
from typing import Any

import pyarrow as pa
from pyiceberg.types import IcebergType, TimeType, UUIDType

_READ: dict[IcebergType, Callable[[str], Any]] = {
    TimeType(): time.fromisoformat,
    UUIDType(): lambda text: uuid.UUID(text).bytes,
}


def readable(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column of a file in the type that it has in a frame."""
    stored = column.type.storage_type if isinstance(column.type, pa.ExtensionType) else column.type
    if not (pa.types.is_fixed_size_binary(stored) and pa.types.is_string(kind)):
        return column.cast(kind)
    found = column.cast(stored).to_pylist()
    return pa.chunked_array([[None if v is None else str(uuid.UUID(bytes=v)) for v in found]], kind)


def writable(column: pa.Array, wanted: IcebergType, kind: pa.DataType) -> pa.Array:
    """A column of a frame, to be cast to the type that it has in a file.

    Raises ValueError for a text that is no such value.
    """
    if wanted not in _READ or not pa.types.is_string(column.type):
        return column
    read = _READ[wanted]
    return pa.array([None if v is None else read(v) for v in column.to_pylist()], kind)
