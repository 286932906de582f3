"""Values of the columns -> JSON values, and those -> the bytes of keys and values."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.rows import fraction
from dataflow_assets.formats.value_schema import head_of
from dataflow_assets.languages.sql.engine.bytes.avro_schemas import schema_of
from dataflow_assets.languages.sql.engine.bytes.csv import joiner
from dataflow_assets.languages.sql.engine.bytes.json_as_flink import encoder as json_encoder
from dataflow_assets.languages.sql.engine.bytes.layout import (
    RAW_BYTES,
    FlinkLayout,
    Spelling,
    Times,
)
from dataflow_assets.languages.sql.engine.casts import or_null
from dataflow_assets.languages.sql.engine.texts import clock_text, date_text, shortest
from dataflow_assets.languages.sql.engine.types import FlinkType
from dataflow_assets.records.record import exact_json

Write = Callable[[Any], Any]
"""From a value that is not null to a JSON value."""
Encode = Callable[[Mapping[str, Any]], bytes | None]
"""From the JSON values of a row, by the names of the layout, to bytes. Raises RejectedRecord."""
_encode = msgspec.json.Encoder(decimal_format="number").encode


def writer(kind: FlinkType, times: Times) -> Write | None:
    """Returns what makes a JSON value of a value; None where the value is one."""
    if kind.kind == "FLOAT":
        return lambda value: fraction(shortest(value))
    if kind.kind == "DOUBLE":
        return fraction
    if kind.kind == "VARBINARY":
        return lambda value: base64.b64encode(value).decode()
    if kind.kind == "DATE":
        return date_text
    if kind.kind == "TIME":
        return lambda value: _trim(clock_text(value, 6))
    if kind.moment:
        return _moments(kind, times)
    return _write_nested(kind, times) if kind.items else None


def _moments(kind: FlinkType, times: Times) -> Write:
    between = " " if times == "SQL" else "T"
    zone = "Z" if kind.kind == "TIMESTAMP_LTZ" or times == "RFC-3339" else ""

    def write(value: datetime) -> str:
        text = value.replace(tzinfo=None).isoformat(between)
        return f"{text.rstrip('0') if value.microsecond else text}{zone}"

    return write


def _trim(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _same(value: Any) -> Any:
    return value


def _write_nested(kind: FlinkType, times: Times) -> Write:
    inner = [or_null(writer(one, times) or _same) for one in kind.items]
    if kind.kind == "ARRAY":
        return lambda value: [inner[0](one) for one in value]
    if kind.kind == "MAP":
        return lambda value: {_name(name): inner[1](one) for name, one in value.items()}
    pairs = list(zip(kind.names, inner, strict=True))
    return lambda value: {name: write(one) for (name, write), one in zip(pairs, value, strict=True)}


def _name(name: str | None) -> str:
    if name is None:
        raise ValueError("a map has a null key, which JSON cannot have")
    return name


def encoder(
    layout: FlinkLayout, number: int | None = None, *, spelling: Spelling = "Flink's"
) -> Encode:
    """Returns what makes the bytes of a layout; made once for each task.

    `number`: of the registry's schema, with which they begin.
    """
    if layout.kind == "json":
        return json_encoder(layout) if spelling == "Flink's" else lambda row: _json(row, layout)
    if layout.kind == "csv":
        return joiner(layout, spelling)
    if layout.kind == "raw":
        return lambda row: _raw(row[layout.names[0]], layout)
    from dataflow_assets.formats.avro_encoder import AvroEncoder

    encode = AvroEncoder(schema_of(layout), ignore_unknown=True)
    head = b"" if number is None else head_of(number)
    return lambda row: head + encode(exact_json({name: row[name] for name in layout.names}))


def _json(row: Mapping[str, Any], layout: FlinkLayout) -> bytes:
    members = {name: row[name] for name in layout.names}
    if layout.ignore_nulls:
        members = {name: value for name, value in members.items() if value is not None}
    if layout.plain_decimals:
        members = _plain(members)
    return _encode(members)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return msgspec.Raw(f"{value:f}".encode())
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _in_charset(text: str, charset: str) -> bytes:
    try:
        return text.encode(charset)
    except UnicodeEncodeError:
        raise RejectedRecord("encode", f"raw: {charset} lacks a character of the text") from None


def _raw(value: Any, layout: FlinkLayout) -> bytes | None:
    if value is None:
        return None
    kind = layout.types[0]
    if kind.text:
        return _in_charset(str(value), layout.charset)
    if kind.kind == "VARBINARY":
        return base64.b64decode(value)
    if kind.kind == "BOOLEAN":
        return bytes([value])
    if kind.integer:
        return int(value).to_bytes(RAW_BYTES[kind.kind], layout.endianness, signed=True)
    return struct.pack(layout.raw_fraction, float(value))
