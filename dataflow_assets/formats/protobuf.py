"""Protobuf messages of a registry to JSON.

A message begins with the byte 0, the number of its schema in four bytes, and which of the schema's
message types it is. Fields have the names of the schema. A field without presence has its default
where it is not sent; any other one is null then. Numbers are numbers, also of 64 bits; bytes are
base64, enums their names; `google.protobuf.Timestamp` and other well-known types have the form of
Protobuf's own JSON. `confluent.type.Decimal` is a number with all its digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.message_format import (
    Group,
    Grouped,
    MessageFormat,
    Schemas,
    StoredSchema,
    Texts,
)
from dataflow_assets.formats.protobuf_json import plain
from dataflow_assets.formats.protobuf_schema import compile_schema
from dataflow_assets.records.record import exact_json

_PROTOBUF = "PROTOBUF"
_HEAD = 5
_UNFIT = (DecodeError, ValueError, RecursionError, OverflowError)


@dataclass(frozen=True)
class ProtobufFormat(MessageFormat):
    """Decodes the messages of one topic by the schemas that they name."""

    schemas: Schemas

    @override
    def columns(self, bodies: pa.Array, as_json: frozenset[str] = frozenset()) -> Grouped:
        decoded = self.texts(bodies)
        there = np.flatnonzero(decoded.texts.is_valid().to_numpy(zero_copy_only=False))
        groups = [Group(there, decoded.texts.take(pa.array(there)))] if len(there) else []
        return Grouped(groups, decoded.refused)

    @override
    def texts(self, bodies: pa.Array) -> Texts:
        refused: dict[int, str] = {}
        decoders: dict[bytes, StoredSchema | RejectedRecord] = {}
        texts = []
        for row, body in enumerate(bodies.to_pylist()):
            try:
                texts.append(None if body is None else self._text(body, decoders))
            except RejectedRecord as error:
                refused[row] = error.reason
                texts.append(None)
        return Texts(pa.array(texts, pa.binary()), refused)

    def _text(self, body: bytes, schemas: dict[bytes, StoredSchema | RejectedRecord]) -> bytes:
        if body[:1] != b"\0" or len(body) <= _HEAD:
            raise _unfit("does not begin with the byte 0 and the number of a schema")
        head = body[1:_HEAD]
        if head not in schemas:
            schemas[head] = self._ask(head)
        schema = schemas[head]
        if isinstance(schema, RejectedRecord):
            raise schema
        name = f"schema {int.from_bytes(head, 'big')} of the registry"
        path, at = _path(body, _HEAD)
        read = _reader(name, schema, path)
        try:
            return exact_json(read(body[at:]))
        except _UNFIT as error:
            text = (str(error).splitlines() or [""])[0][:200]
            raise _unfit(f"{name}: {text or 'no value of the schema'}") from None

    def _ask(self, head: bytes) -> StoredSchema | RejectedRecord:
        """Once for each batch, however many messages name it."""
        try:
            return self.schemas.by_id(int.from_bytes(head, "big"))
        except RejectedRecord as error:
            return error


@lru_cache(maxsize=256)
def _reader(name: str, schema: StoredSchema, path: tuple[int, ...]) -> Callable[[bytes], Any]:
    """Reads one message type of a schema. Raises RejectedRecord where there is none."""
    if schema.kind != _PROTOBUF:
        raise _unfit(f"{name} is of type {schema.kind}, and not Protobuf")
    try:
        file = compile_schema(schema.text, schema.references)
    except ValueError as error:
        raise _unfit(f"{name} cannot be used: {error}") from None
    message_class = GetMessageClass(
        _message_type(name, list(file.message_types_by_name.values()), path)
    )

    def read(value: bytes) -> Any:
        message: Message = message_class()
        message.ParseFromString(value)
        return plain(message)

    return read


def _message_type(name: str, types: Sequence[Descriptor], path: tuple[int, ...]) -> Descriptor:
    """The message type at a path of indexes: in the file, in that type, and so on."""
    for step, index in enumerate(path):
        if index >= len(types):
            raise _unfit(f"{name} has no message type {'.'.join(map(str, path))}")
        if step + 1 == len(path):
            return types[index]
        # The types of maps are not in the text by which Java's serializers count.
        types = [one for one in types[index].nested_types if not one.GetOptions().map_entry]
    raise _unfit(f"{name}: no message type is named")


def _path(body: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The indexes that name a message type, and where the value begins."""
    count, at = _number(body, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= len(body):
        raise _unfit("the message type is named by nonsense")
    indexes = []
    for _ in range(count):
        index, at = _number(body, at)
        indexes.append(index)
    if min(indexes) < 0:
        raise _unfit("the message type is named by nonsense")
    return tuple(indexes), at


def _number(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(body) and shift < 64:
        value |= (body[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if body[at - 1] < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise _unfit("ends before its value begins")


def _unfit(reason: str) -> RejectedRecord:
    return RejectedRecord("decode", reason)
