"""Many Avro values of one schema, decoded at once.

One call of fastavro for each value costs more than decoding it. So values are put together as the
items of one Avro array, each followed by a mark that nobody else knows: an item that ends early or
late swallows its mark, or finds none, and the whole call fails.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Sequence
from io import BytesIO
from typing import Any, cast

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader
from fastavro.read import SchemaResolutionError

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.avro_depth import Depth
from dataflow_assets.formats.avro_schema import AvroSchema

UNFIT = (
    RejectedRecord,
    SchemaResolutionError,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    ArithmeticError,
    MemoryError,
    RecursionError,
    struct.error,
    pa.ArrowException,
)
"""What says that one of the values is none of its schema."""

_MARK = secrets.token_bytes(8)
_FIELD = "_dataflow_mark"
_VALUE = "_dataflow_value"
_TYPE = {"type": "fixed", "name": "_dataflow_mark_type", "size": len(_MARK)}


class AvroReader:
    """Reads values as messages hold them: numbers, bytes and texts (`AvroSchema.raw`)."""

    def __init__(self, schema: AvroSchema, *, as_columns: bool) -> None:
        """`as_columns`: records may have a field more, the mark: nobody reads it."""
        self._inside = as_columns and _can_hold_mark(schema)
        mark = {"name": _FIELD, "type": _TYPE}
        if self._inside:
            item = schema.raw | {"fields": [*schema.raw["fields"], mark]}
        else:
            fields = [{"name": _VALUE, "type": schema.raw}, mark]
            item = {"type": "record", "name": "_dataflow_item", "fields": fields}
        self._written = parse_schema({"type": "array", "items": item})
        self._alone = parse_schema(schema.raw)
        self._depth = Depth(schema) if schema.recursive else None

    def __call__(self, values: Sequence[bytes]) -> list[Any]:
        """Raises one of UNFIT where a value is none of the schema."""
        if self._depth is not None:
            self._depth.check(values)
        block = BytesIO(b"".join((_long(len(values)), _MARK.join(values), _MARK, b"\0")))
        items = cast("list[Any]", schemaless_reader(block, self._written, None))
        if len(items) != len(values) or any(one[_FIELD] != _MARK for one in items):
            raise ValueError("the value ends before or behind the end of the message")
        return items if self._inside else [one[_VALUE] for one in items]

    def own_error(self, value: bytes) -> Exception | None:
        """Returns why a value alone cannot be read: in a block it may have read into its mark."""
        data = BytesIO(value)
        try:
            schemaless_reader(data, self._alone, None)
        except UNFIT as error:
            return error
        left = len(value) - data.tell()
        return ValueError(f"{left} more bytes behind the end of the value") if left else None


def why(error: Exception) -> str:
    """Returns what is wrong with a value, in short."""
    if isinstance(error, RejectedRecord):
        return error.reason
    if isinstance(error, EOFError) or str(error) == "string index out of range":  # of a number
        return "the message ends before the value does"
    if isinstance(error, UnicodeDecodeError):
        return "a text that is not UTF-8"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, LookupError):
        return "the number of a type or symbol that the schema does not have"
    text = (str(error).splitlines() or [""])[0]
    return text[:200] or type(error).__name__


def _can_hold_mark(schema: AvroSchema) -> bool:
    root = schema.raw
    return isinstance(root, dict) and root["type"] == "record" and not schema.recursive


def _long(number: int) -> bytes:
    left, found = number << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])
