"""From Arrow fields to the msgspec types that decode them, and from sample values to a schema."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime, time
from decimal import Decimal
from functools import reduce
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import UNSET, Meta

from dataflow_assets.contracts import Kind, Note, kind_of
from dataflow_assets.formats.text_forms import UUID

_INTEGERS: dict[pa.DataType, tuple[int, int | None]] = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint8(): (0, 2**8 - 1),
    pa.uint16(): (0, 2**16 - 1),
    pa.uint32(): (0, 2**32 - 1),
    pa.uint64(): (0, None),  # the decoder knows no bound beyond int64: Arrow refuses the rest
}
_SIMPLE: dict[Any, Any] = {
    pa.bool_(): bool,
    pa.float32(): float | str,  # text for NaN and the infinities, which JSON has no numbers for
    pa.float64(): float | str,
    pa.date32(): date,
    pa.time64("us"): time,
    pa.binary(): bytes,
}


_UNFIT = re.compile(r'["\\\x00-\x1f]')


def is_plain_key(name: object) -> bool:
    """Returns whether msgspec takes a name as the key of a struct's member."""
    return not _UNFIT.search(str(name))


def has_plain_keys(kind: pa.StructType) -> bool:
    """Returns whether msgspec takes the names of all of a struct's fields as keys."""
    return all(is_plain_key(field.name) for field in kind)


def struct_type(fields: Iterable[pa.Field], *, forbid_unknown: bool) -> type[msgspec.Struct]:
    """A struct with one field per column, in order; their names must be plain keys."""
    columns = list(fields)
    names = {f"c{index}": field.name for index, field in enumerate(columns)}
    members = [_member(name, field) for name, field in zip(names, columns, strict=True)]
    return msgspec.defstruct(
        "Row", members, rename=names, kw_only=True, gc=False, forbid_unknown_fields=forbid_unknown
    )


def is_optional(field: pa.Field) -> bool:
    return bool(field.nullable or Note.HAS_DEFAULT.marks(field))


def _member(name: str, field: pa.Field) -> Any:
    kind = or_null(field) if field.nullable else value_type(field)
    return (name, kind, UNSET) if is_optional(field) else (name, kind)


def value_type(field: pa.Field) -> Any:
    """The Python type that a column's JSON value decodes to."""
    if kind_of(field) in (Kind.JSON, Kind.NUMERIC) or Note.SCALARS.marks(field):
        return msgspec.Raw
    if kind_of(field) == Kind.UUID:
        return Annotated[str, Meta(pattern=UUID)]
    if field.type in _INTEGERS:
        low, high = _INTEGERS[field.type]
        return Annotated[int, Meta(ge=low, le=high)]
    if field.type in _SIMPLE:
        return _SIMPLE[field.type]
    if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
        longest = Note.MAX_LENGTH.of(field)
        return Annotated[str, Meta(max_length=int(longest))] if longest else str
    return _compound_type(field.type)


def or_null(field: pa.Field) -> Any:
    """The type of a value or null; what is kept as it was sent may be null anyway."""
    kind = value_type(field)
    return kind if kind is msgspec.Raw else kind | None


def _compound_type(kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return Annotated[datetime, Meta(tz=True)] if kind.tz else datetime
    if pa.types.is_decimal(kind):
        return Decimal
    if pa.types.is_struct(kind):
        return struct_type(kind, forbid_unknown=True) if has_plain_keys(kind) else msgspec.Raw
    if pa.types.is_list(kind):
        return list[or_null(kind.value_field)]  # type: ignore[misc]
    if pa.types.is_map(kind):
        return dict[value_type(kind.key_field), or_null(kind.item_field)]  # type: ignore[misc]
    raise TypeError(f"no JSON value can be read into a column of type {kind}")


def infer(bodies: Iterable[Any]) -> pa.Schema:
    """The schema of sample messages: the widest type that fits all of them, never the first's.

    JSON text, or objects as records hold them, in which times may stand.

    Integers and fractions widen to float64, integers beyond 64 bits to decimal(38, 0); values that
    disagree beyond that become `pa.json_()`. Bodies that are not JSON objects are left out.
    """
    merged: pa.DataType = pa.struct([])
    for body in bodies:
        value = _object(body)
        if value is not None:
            merged = widest(merged, _kind(value))
    return pa.schema(list(merged))


def merge(schemas: Iterable[pa.Schema]) -> pa.Schema:
    kinds = [pa.struct(list(schema)) for schema in schemas]
    return pa.schema(list(reduce(widest, kinds, pa.struct([]))))


def _object(body: Any) -> dict[str, Any] | None:
    if isinstance(body, dict):
        return body
    try:
        value = msgspec.json.decode(body) if body else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _kind(value: Any) -> pa.DataType:
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return pa.int64()
        return pa.decimal128(38, 0) if abs(value) < 10**38 else pa.json_()
    if isinstance(value, float | Decimal):
        return pa.float64()
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, datetime):
        return pa.timestamp("us", "UTC")
    if isinstance(value, list):
        return pa.list_(reduce(widest, map(_kind, value), pa.null()))
    return pa.struct([pa.field(name, _kind(item)) for name, item in value.items()])


def widest(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The narrowest type that holds values of both."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _widest_struct(one, other)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(widest(one.value_type, other.value_type))
    return _widest_number(one, other)


def _widest_struct(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    fields = {field.name: field.type for field in one}
    for field in other:
        fields[field.name] = widest(fields.get(field.name, pa.null()), field.type)
    return pa.struct([pa.field(name, kind) for name, kind in fields.items()])


def _widest_number(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    pair = {one, other}
    if pair == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pair == {pa.int64(), pa.decimal128(38, 0)}:
        return pa.decimal128(38, 0)
    return pa.json_()
