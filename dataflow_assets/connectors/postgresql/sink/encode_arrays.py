"""JSON arrays as PostgreSQL writes its own: `[1, [2], null]` is `{1,{2},NULL}`.

A text that is no JSON array, and the text inside a JSON string, is taken as PostgreSQL's own
writing. Bytes are base64 in JSON, as everywhere.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec
import pyarrow as pa

from dataflow_assets.connectors.postgresql.errors import Failure
from dataflow_assets.connectors.postgresql.table.column import TYPE

_parse = msgspec.json.Decoder(float_hook=str).decode
_encode = msgspec.json.Encoder().encode
_documents = msgspec.json.Decoder(list[msgspec.Raw]).decode
_BYTES = b"bytea[]"
_JSON = (b"json[]", b"jsonb[]")  # of one dimension: an inner list is one of their values


def literals(values: pa.Array, field: pa.Field) -> pa.Array:
    """The arrays of a column; raises Failure where PostgreSQL would refuse the value."""
    kind = (field.metadata or {}).get(TYPE, b"")
    found = [None if v is None else _literal(v, field.name, kind) for v in values.to_pylist()]
    return pa.array(found, pa.string())


def _literal(text: str, name: str, kind: bytes) -> str:
    try:
        value = _parse(text)
    except msgspec.DecodeError:
        return text
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return text
    if kind in _JSON:
        documents = (bytes(document).decode() for document in _documents(text))
        return _list([None if text == "null" else text for text in documents], as_bytes=False)
    try:
        return _list(value, as_bytes=kind == _BYTES)
    except binascii.Error:
        raise Failure(f"not base64: {text[:60]}", "22P02", column=name) from None


def _list(values: list[Any], *, as_bytes: bool) -> str:
    return "{" + ",".join(_item(value, as_bytes=as_bytes) for value in values) + "}"


def _item(value: Any, *, as_bytes: bool) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return _list(value, as_bytes=as_bytes)
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, dict):
        value = _encode(value).decode()
    if not isinstance(value, str):
        return str(value)
    if as_bytes:
        value = rf"\x{base64.b64decode(value, validate=True).hex()}"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
