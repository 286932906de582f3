"""Keys and values of messages as JSON: what steps get to see."""

from __future__ import annotations

import struct
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import msgspec
import numpy as np
import pyarrow as pa
from typing_extensions import override

from dataflow_assets.formats.message_format import Group, Grouped, MessageFormat, Schemas, Texts
from dataflow_assets.formats.rows import fraction
from dataflow_assets.languages.sql.engine.bytes.avro_schemas import schema_of
from dataflow_assets.languages.sql.engine.bytes.csv import Cells, splitter
from dataflow_assets.languages.sql.engine.bytes.layout import RAW_BYTES, FlinkLayout
from dataflow_assets.languages.sql.engine.bytes.number_texts import keeper
from dataflow_assets.languages.sql.engine.first_json import first_json
from dataflow_assets.records.record import exact_json

SKIPPED = b""
"""The text of bytes that are to be skipped, and of empty ones: no JSON."""
SKIPPED_KEY = b"-"
"""The same for keys, where an empty text stands for no key at all."""
_checked = msgspec.json.Decoder(msgspec.Raw).decode
Texted = Callable[[bytes], bytes]
"""From the bytes of a message to JSON. Raises ValueError."""


@dataclass(frozen=True)
class SqlFormat(MessageFormat):
    """The formats of a table's keys and values."""

    value: FlinkLayout
    key: FlinkLayout | None = None
    """None: keys are not read."""
    schemas: Schemas | None = None
    """Those that keys and values of a registry name by their numbers."""

    @override
    def columns(self, bodies: pa.Array, as_json: frozenset[str] = frozenset()) -> Grouped:
        decoded = self.texts(bodies)
        at = np.flatnonzero(decoded.texts.is_valid().to_numpy(zero_copy_only=False))
        rows = decoded.texts.take(pa.array(at))
        return Grouped([Group(at, rows)] if len(at) else [], decoded.refused)

    @override
    def texts(self, bodies: pa.Array) -> Texts:
        return _texts(bodies, self.value, SKIPPED, self.schemas)

    @override
    def keys(self, keys: pa.Array) -> Texts:
        if self.key is None:
            return Texts(keys)
        decoded = _texts(keys, self.key, SKIPPED_KEY, self.schemas)
        return Texts(decoded.texts, {row: f"key: {why}" for row, why in decoded.refused.items()})


def _texts(given: pa.Array, layout: FlinkLayout, skipped: bytes, schemas: Schemas | None) -> Texts:
    if layout.kind == "avro":
        return _of_avro(given, layout, skipped, schemas)
    if layout.kind == "json" and _all_json(given):
        keep = _keeper(layout)
        return Texts(given if keep is None else keep(given))
    text = _as_text(layout)
    texts: list[bytes | None] = []
    refused: dict[int, str] = {}
    for row, one in enumerate(given.to_pylist()):
        try:
            texts.append(None if one is None else text(one))
        except ValueError as error:
            texts.append(skipped if layout.ignore_errors else None)
            if not layout.ignore_errors:
                refused[row] = str(error)
    keep = _keeper(layout)
    bodies = pa.array(texts, pa.binary())
    return Texts(bodies if keep is None else keep(bodies), refused)


_keeper = lru_cache(maxsize=64)(keeper)


def _of_avro(
    given: pa.Array, layout: FlinkLayout, skipped: bytes, schemas: Schemas | None
) -> Texts:
    from dataflow_assets.formats.avro import AvroFormat

    # Of a registry each value is read by its own schema, and its fields are found by their names:
    # how others call their records is their own matter.
    form = AvroFormat(schemas=schemas) if layout.named else AvroFormat(schema=schema_of(layout))
    decoded = form.texts(given)
    if not layout.ignore_errors or not decoded.refused:
        return decoded
    texts = decoded.texts.to_pylist()
    for row in decoded.refused:
        texts[row] = skipped
    return Texts(pa.array(texts, pa.binary()))


@lru_cache(maxsize=64)
def _as_text(layout: FlinkLayout) -> Texted:
    if layout.kind == "json":
        return partial(_json, lenient=layout.ignore_errors)
    if layout.kind == "csv":
        split = splitter(layout)
        return lambda one: _csv(one, layout, split)
    return lambda one: _raw(one, layout)


def _json(body: bytes, *, lenient: bool) -> bytes:
    """Returns JSON unchanged: whoever reads it rejects what cannot be kept exactly.

    A byte order mark is left out; `lenient`: also what is behind the first value.
    """
    body = body.removeprefix(BOM_UTF8)
    if not body:
        return body
    try:
        _checked(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if lenient:
            return first_json(body.decode()).encode()
        raise ValueError(f"not JSON: {_without_value(error)}") from None
    return body


def _all_json(given: pa.Array) -> bool:
    try:
        deque(map(_checked, filter(None, given.to_pylist())), maxlen=0)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _without_value(error: Exception) -> str:
    return str(error).replace("JSON is malformed: ", "")


def _csv(given: bytes, layout: FlinkLayout, split: Callable[[str], Cells]) -> bytes:
    if not given:
        raise ValueError("not CSV: the record is empty")
    text = given.decode()
    if layout.comments and text.startswith("#"):
        return SKIPPED
    return exact_json(split(text))


def _raw(given: bytes, layout: FlinkLayout) -> bytes:
    kind = layout.types[0]
    if kind.text:
        return exact_json(given.decode(layout.charset))
    if kind.kind == "VARBINARY":
        return exact_json(given)
    if kind.kind == "BOOLEAN":
        return b"true" if given[:1] != b"\0" else b"false"
    if len(given) != RAW_BYTES[kind.kind]:
        raise ValueError(f"{len(given)} bytes, where {kind} has {RAW_BYTES[kind.kind]}")
    if kind.integer:
        return exact_json(int.from_bytes(given, layout.endianness, signed=True))
    return exact_json(fraction(struct.unpack(layout.raw_fraction, given)[0]))
