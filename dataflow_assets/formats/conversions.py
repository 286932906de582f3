"""One typed column into another type, without loss: what would lose something raises.

`ValueError` and Arrow's own errors mean that some value does not fit.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import kind_of
from dataflow_assets.formats.json_columns import array
from dataflow_assets.formats.json_types import UUID, value_type
from dataflow_assets.formats.rows import cells, moments

_TEXTS = (None, b"text", b"uuid")
_NUMBER = r"^(-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|NaN|-?Infinity)$"
_WIDEST = 76  # digits of decimal256

_encode = msgspec.json.Encoder(decimal_format="number").encode


def convert(column: pa.Array, given: pa.Field, wanted: pa.Field) -> pa.Array:
    """The column as `wanted` has it. Raises where a value does not fit."""
    kind = kind_of(wanted)
    if kind == b"json":
        return column if kind_of(given) == b"json" else _json(column, given)
    if kind == b"numeric":
        return _digits(column, given)
    if kind == b"uuid" and kind_of(given) != b"uuid":
        return _checked(_text(column, given), UUID, "a UUID")
    if pa.types.is_string(wanted.type) and kind in _TEXTS:
        return _text(column, given)
    if given.type == wanted.type and not pa.types.is_nested(wanted.type):
        return column
    if pa.types.is_list(wanted.type) and pa.types.is_list(given.type):
        return _list(column, given.type, wanted.type)
    if pa.types.is_struct(wanted.type) and pa.types.is_struct(given.type):
        return _struct(column, given.type, wanted.type)
    if pa.types.is_map(wanted.type):
        return _map(column, given, wanted)
    return _simple(column, wanted.type)


def _map(column: pa.Array, given: pa.Field, wanted: pa.Field) -> pa.Array:
    """Of JSON objects, the only form in which maps travel."""
    texts = column if kind_of(given) == b"json" else _json(column, given)
    decode = msgspec.json.Decoder(value_type(wanted)).decode
    try:
        found = [None if text is None else decode(text) for text in texts.to_pylist()]
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    return array(wanted, found)


def _simple(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(wanted):
        return _decimal(column, wanted)
    if pa.types.is_timestamp(wanted):
        return _timestamp(column, wanted)
    if pa.types.is_string(column.type) and pa.types.is_integer(wanted):
        return _decimal(column, pa.decimal256(_WIDEST, 0)).cast(wanted)
    if pa.types.is_date(wanted) and pa.types.is_timestamp(column.type):
        return _day(column, wanted)
    if pa.types.is_floating(wanted) and pa.types.is_decimal(column.type):
        return column.cast(pa.string()).cast(wanted)  # Arrow divides, and is not the nearest
    return column.cast(wanted)


def _timestamp(column: pa.Array, wanted: Any) -> pa.Array:
    """A naive time counts as UTC."""
    if not pa.types.is_timestamp(column.type):
        return column.cast(wanted)
    naive = column.cast(pa.timestamp(column.type.unit)).cast(pa.timestamp(wanted.unit))
    return pc.assume_timezone(naive, "UTC") if wanted.tz else naive


def _day(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    days = column.cast(wanted)
    if pc.any(pc.not_equal(days.cast(column.type), column)).as_py():
        raise ValueError("a time of day would be lost")
    return days


def _decimal(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """By way of text: Arrow refuses by precision where every value would fit."""
    if pa.types.is_decimal(column.type):
        return column.cast(wanted)
    texts = column if pa.types.is_string(column.type) else column.cast(pa.string())
    return texts.cast(pa.decimal256(_WIDEST, wanted.scale)).cast(wanted)


def _digits(column: pa.Array, given: pa.Field) -> pa.Array:
    if kind_of(given) == b"numeric":
        return column
    found = [None if c is None else str(c) for c in _plain(cells(column, given))]
    return _checked(pa.array(found, pa.string()), _NUMBER, "a number")


def _checked(texts: pa.Array, pattern: str, what: str) -> pa.Array:
    if not pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py():
        raise ValueError(f"expected {what}")
    return texts


def _text(column: pa.Array, given: pa.Field) -> pa.Array:
    if kind_of(given) == b"json":
        return pa.array([_bare(text) for text in column.to_pylist()], pa.string())
    if pa.types.is_string(given.type):
        return column
    if pa.types.is_temporal(given.type):
        return pa.array(moments(column), pa.string())
    if pa.types.is_boolean(given.type) or pa.types.is_integer(given.type):
        return column.cast(pa.string())
    found = _plain(cells(column, given))
    return pa.array([_written(value) for value in found], pa.string())


def _bare(text: str | None) -> str | None:
    """A lone text of JSON stands for itself."""
    return msgspec.json.decode(text, type=str) if text and text[:1] == '"' else text


def _written(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _encode(value).decode()


def _plain(found: list[Any]) -> list[Any]:
    return [bytes(v).decode() if isinstance(v, msgspec.Raw) else v for v in found]


def _json(column: pa.Array, given: pa.Field) -> pa.Array:
    found = cells(column, given)
    texts = [None if value is None else _encode(value).decode() for value in found]
    return pa.array(texts, pa.string())


def _list(column: pa.Array, given: Any, wanted: Any) -> pa.Array:
    values = convert(column.values, given.value_field, wanted.value_field)
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(column.offsets, values, type=wanted, mask=mask)


def _struct(column: pa.Array, given: Any, wanted: Any) -> pa.Array:
    lost = {field.name for field in given} - {field.name for field in wanted}
    if lost:
        raise ValueError(f"the target has no field {', '.join(sorted(lost))}")
    children = [_member(column, given, field) for field in wanted]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)


def _member(column: pa.Array, given: Any, wanted: pa.Field) -> pa.Array:
    index = given.get_field_index(wanted.name)
    if index < 0:
        return pa.nulls(len(column), wanted.type)
    return convert(column.field(index), given.field(index), wanted)
