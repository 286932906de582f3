"""Protobuf messages as what JSON has."""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from dataflow_assets.formats.rows import fraction, short_fraction

_KNOWN = "google.protobuf."
_WRAPPERS = frozenset(
    f"{_KNOWN}{name}Value"
    for name in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
)
_OWN_JSON = frozenset(
    f"{_KNOWN}{name}"
    for name in ("Timestamp", "Duration", "FieldMask", "Struct", "Value", "ListValue")
)
_DECIMAL = {"value": FieldDescriptor.TYPE_BYTES, "scale": FieldDescriptor.TYPE_INT32}


def plain(message: Message) -> Any:
    """A message as an object with a member for each of its fields."""
    name = message.DESCRIPTOR.full_name
    if name in _OWN_JSON:
        return MessageToDict(message)
    if name in _WRAPPERS:
        return _value(message.DESCRIPTOR.fields_by_name["value"], message.value)
    if name == "confluent.type.Decimal" and _is_decimal(message.DESCRIPTOR):
        return Decimal(f"{int.from_bytes(message.value, 'big', signed=True)}E{-message.scale}")
    return {field.name: _member(message, field) for field in message.DESCRIPTOR.fields}


def _is_decimal(kind: Descriptor) -> bool:
    """A registry may hold another message of that name."""
    types = {field.name: field.type for field in kind.fields if not field.is_repeated}
    return types.items() >= _DECIMAL.items()


def _member(message: Message, field: FieldDescriptor) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {_key(key): _value(inner, value[key]) for key in value}
    return _value(field, value) if _is_one(field) else [_value(field, one) for one in value]


def _is_one(field: FieldDescriptor) -> bool:
    return not field.is_repeated


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _value(field: FieldDescriptor, value: Any) -> Any:
    form = _FORMS.get(field.type)
    return value if form is None else form(field, value)


def _enum(field: FieldDescriptor, value: int) -> str | int:
    """A number that the schema does not name stays a number."""
    member = field.enum_type.values_by_number.get(value)
    return value if member is None else member.name


def _text(_: FieldDescriptor, value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


_FORMS: dict[int, Callable[[FieldDescriptor, Any], Any]] = {
    FieldDescriptor.TYPE_MESSAGE: lambda _, value: plain(value),
    FieldDescriptor.TYPE_GROUP: lambda _, value: plain(value),
    FieldDescriptor.TYPE_ENUM: _enum,
    FieldDescriptor.TYPE_BYTES: lambda _, value: base64.b64encode(value).decode(),
    FieldDescriptor.TYPE_STRING: _text,
    FieldDescriptor.TYPE_DOUBLE: lambda _, value: fraction(value),
    FieldDescriptor.TYPE_FLOAT: lambda _, value: short_fraction(value),
}
