"""One typed column into another type, without loss: what would lose something raises.

Numbers, and moments, go into others of their kind; everything goes into text and into JSON. All
other pairs go by way of JSON, so that a value is stored, or refused, as it is with steps between.
`ValueError` and Arrow's own errors mean that some value does not fit.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import Kind, Note, element_of, kind_of
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats import json_times
from dataflow_assets.formats.decimals import read_decimals
from dataflow_assets.formats.json_columns import array, within
from dataflow_assets.formats.json_types import or_null
from dataflow_assets.formats.rows import INFINITY, cells, infinite, moments, without
from dataflow_assets.formats.structs import nulls, struct_of
from dataflow_assets.formats.text_forms import NUMBER, UUID, all_have
from dataflow_assets.records.record import exact_json

_WIDEST = 76  # digits of decimal256


def convert(column: pa.Array, given: pa.Field, wanted: pa.Field) -> pa.Array:
    """The column as `wanted` has it. Raises where a value does not fit."""
    if column.null_count == len(column):
        return nulls(len(column), wanted.type)
    if pa.types.is_string(wanted.type):
        return _string(column, given, wanted)
    if pa.types.is_nested(wanted.type):
        return _convert_nested(column, given, wanted)
    if given.type == wanted.type:
        return column
    if _is_number(wanted.type) and _holds_numbers(given, wanted):
        return _number(column, wanted.type)
    if _is_moment(wanted.type) and _is_moment(given.type):
        return _moment(column, wanted)
    return _read_from_json(column, given, wanted)


def _string(column: pa.Array, given: pa.Field, wanted: pa.Field) -> pa.Array:
    kind = kind_of(wanted)
    if kind == Kind.JSON:
        return (
            column if kind_of(given) == Kind.JSON else _json(*_with_elements(column, given, wanted))
        )
    if kind == Kind.NUMERIC:
        return _digits(column, given, wanted)
    if kind == Kind.UUID and kind_of(given) != Kind.UUID:
        return _check(_text(column, given), UUID, "a UUID")
    return _text(column, given)


def _convert_nested(column: pa.Array, given: pa.Field, wanted: pa.Field) -> pa.Array:
    if pa.types.is_list(wanted.type) and pa.types.is_list(given.type):
        return _list(column, given.type, wanted.type)
    if pa.types.is_struct(wanted.type) and pa.types.is_struct(given.type):
        lost = {field.name for field in given.type} - {field.name for field in wanted.type}
        if lost:
            raise ValueError(f"the target has no field {', '.join(sorted(lost))}")
        inside = column.flatten()  # null where the struct is, whatever stands below it
        children = [_member(inside, given.type, field, len(column)) for field in wanted.type]
        mask = column.is_null() if column.null_count else None
        return struct_of(children, list(wanted.type), mask)
    if pa.types.is_map(wanted.type) and pa.types.is_map(given.type):
        return _map(column, given.type, wanted.type)
    return _read_from_json(column, given, wanted)


def _is_number(kind: pa.DataType) -> bool:
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return bool(is_number)


def _holds_numbers(given: pa.Field, wanted: pa.Field) -> bool:
    """Numbers, and text that may be digits; JSON reads digits of a decimal from text itself."""
    if not pa.types.is_string(given.type):
        return _is_number(given.type)
    text = kind_of(given) in (None, Kind.TEXT) and not pa.types.is_decimal(wanted.type)
    return text or kind_of(given) == Kind.NUMERIC


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _read_from_json(column: pa.Array, given: pa.Field, wanted: pa.Field) -> pa.Array:
    if pa.types.is_binary(wanted.type) and not pa.types.is_string(given.type):
        raise ValueError("only text in base64 can be bytes")  # as the word Infinity could be
    texts = column if kind_of(given) == Kind.JSON else _json(column, given)
    decode = msgspec.json.Decoder(or_null(json_times.as_text(wanted))).decode
    try:
        cells_read = [None if text is None else decode(text) for text in texts.to_pylist()]
        return array(wanted, cells_read)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    except RejectedRecord as error:
        raise ValueError(error.reason) from None


def _number(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_string(column.type):
        column = _check(column, NUMBER, "a number")
    if pa.types.is_decimal(wanted):
        return _decimal(column, wanted)
    if pa.types.is_floating(wanted):
        return _float(column, wanted)
    if pa.types.is_string(column.type):
        column = _decimal(column, pa.decimal256(_WIDEST, 0))
    return column.cast(wanted)


def _float(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The nearest one of a fraction; a whole number, and what is infinite, only as it is."""
    if pa.types.is_integer(column.type):
        return _exact(column, wanted)
    if pa.types.is_floating(column.type):
        endless = pc.sum(pc.is_inf(column), min_count=0).as_py()
    else:  # Arrow divides decimals, and is not the nearest
        column = column.cast(pa.string())
        endless = pc.sum(pc.ends_with(column, "Infinity"), min_count=0).as_py()
    return within(column.cast(wanted), given=endless)


def _exact(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Arrow asks how large the numbers are, and large ones are often exact."""
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid:
        floats = column.cast(wanted, safe=False)
    pairs = zip(column.drop_null().to_pylist(), floats.drop_null().to_pylist(), strict=True)
    if any(int(found) != whole for whole, found in pairs):
        raise ValueError("digits would be lost")
    return floats


def _moment(column: pa.Array, wanted: pa.Field) -> pa.Array:
    """Infinite ones into the infinite ones of the other type, where it has any."""
    endless = infinite(column)
    if not endless or _unit(column.type) == _unit(wanted.type):
        return _finite(column, wanted.type)
    if not Note.INFINITE.marks(wanted):
        raise ValueError("infinity is a moment of its own type alone")
    whole = pa.int32() if pa.types.is_date(wanted.type) else pa.int64()
    limits = np.iinfo(whole.to_pandas_dtype())
    mask = np.isin(np.arange(len(column)), list(endless))
    ends = [
        int(limits.max if text == INFINITY else limits.min) for _, text in sorted(endless.items())
    ]
    instants = _finite(without(column, endless), wanted.type).view(whole)
    return pc.replace_with_mask(instants, mask, pa.array(ends, whole)).view(wanted.type)


def _unit(kind: Any) -> str | None:
    return getattr(kind, "unit", None)


def _finite(column: pa.Array, wanted: Any) -> pa.Array:
    """Midnight is a date, and a date is its midnight; a naive time counts as UTC."""
    if not pa.types.is_timestamp(wanted):
        return _day(column, wanted)
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
    if pa.types.is_decimal(column.type):
        return column.cast(wanted)
    texts = column if pa.types.is_string(column.type) else column.cast(pa.string())
    return read_decimals(texts, wanted)


def _digits(column: pa.Array, given: pa.Field, wanted: pa.Field) -> pa.Array:
    if kind_of(given) == Kind.NUMERIC:
        return column
    if not _holds_numbers(given, wanted) and kind_of(given) != Kind.JSON:
        raise ValueError("expected a number")  # bytes as base64 may look like digits
    return _check(_text(column, given), NUMBER, "a number")


def _check(texts: pa.Array, pattern: str, what: str) -> pa.Array:
    if not all_have(pattern, texts):
        raise ValueError(f"expected {what}")
    return texts


def _text(column: pa.Array, given: pa.Field) -> pa.Array:
    if kind_of(given) == Kind.JSON:
        return pa.array([_bare(text) for text in column.to_pylist()], pa.string())
    if pa.types.is_string(given.type):
        return column
    if pa.types.is_temporal(given.type) and not pa.types.is_duration(given.type):
        return pa.array(moments(column), pa.string())
    if pa.types.is_boolean(given.type) or pa.types.is_integer(given.type):
        return column.cast(pa.string())
    texts = _plain(cells(column, given))
    return pa.array([_write(value) for value in texts], pa.string())


def _bare(text: str | None) -> str | None:
    """A lone text of JSON is that text, and its null is none."""
    if text == "null":
        return None
    return msgspec.json.decode(text, type=str) if text and text[:1] == '"' else text


def _write(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else exact_json(value).decode()


def _plain(values: list[Any]) -> list[Any]:
    return [bytes(v).decode() if isinstance(v, msgspec.Raw) else v for v in values]


def _json(column: pa.Array, given: pa.Field) -> pa.Array:
    values = cells(column, given)
    texts = [None if value is None else exact_json(value).decode() for value in values]
    return pa.array(texts, pa.string())


def _with_elements(
    column: pa.Array, given: pa.Field, wanted: pa.Field
) -> tuple[pa.Array, pa.Field]:
    """Lists for a column of arrays, in whose JSON the elements are as that column has them."""
    element = element_of(wanted)
    if element is None or not pa.types.is_list(given.type):
        return column, given
    kind = _list_type(given.type, element)
    return _list(column, given.type, kind), given.with_type(kind)


def _list_type(given: Any, element: pa.Field) -> pa.DataType:
    """Lists as deep as these; of JSON an inner list is one element."""
    inner = given.value_field
    if pa.types.is_list(inner.type) and kind_of(element) != Kind.JSON:
        return pa.list_(pa.field("item", _list_type(inner.type, element)))
    return pa.list_(element.with_name("item"))


def _list(column: pa.Array, given: Any, wanted: Any) -> pa.Array:
    values = convert(column.values, given.value_field, wanted.value_field)
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(column.offsets, values, type=wanted, mask=mask)


def _map(column: pa.Array, given: Any, wanted: Any) -> pa.Array:
    keys = convert(column.keys, given.key_field, wanted.key_field)
    items = convert(column.items, given.item_field, wanted.item_field)
    mask = column.is_null() if column.null_count else None
    return pa.MapArray.from_arrays(column.offsets, keys, items, type=wanted, mask=mask)


def _member(inside: list[pa.Array], given: Any, wanted: pa.Field, count: int) -> pa.Array:
    index = given.get_field_index(wanted.name)
    if index < 0:
        return nulls(count, wanted.type)
    return convert(inside[index], given.field(index), wanted)
