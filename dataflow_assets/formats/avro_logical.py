"""Avro's logical types as Arrow columns, from what messages hold: numbers and bytes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from struct import unpack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import Kind
from dataflow_assets.formats.text_forms import UUID, all_have

Build = Callable[[Sequence[Any]], pa.Array]
Made = tuple[pa.Field, Build]

_SHORT, _MOST_DIGITS = 38, 76  # of the two decimals that Arrow has
_DAY = 24 * 3600 * 1_000_000
_ON = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
}
_SIZES = {"uuid": 16, "duration": 12}


def logical_type(schema: Any) -> str | None:
    """The logical type of a schema; None without one, and where it does not suit its type.

    Avro's rule: what does not suit is ignored, and the value is one of the underlying type.
    """
    name = schema.get("logicalType") if isinstance(schema, dict) else None
    kind = schema.get("type") if name else None
    if not isinstance(name, str) or not isinstance(kind, str) or kind not in _ON.get(name, ()):
        return None
    if name == "decimal":
        return name if _digits(schema) else None
    if kind == "fixed" and schema.get("size") != _SIZES[name]:
        return None
    return name


def _digits(schema: Mapping[str, Any]) -> tuple[int, int] | None:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return None
    return (precision, scale) if 0 <= scale <= precision and precision > 0 else None


def column(name: str, schema: Mapping[str, Any]) -> Made:
    """The column of a logical type, and what builds it.

    Values are as the message holds them, or Python's own objects: a type that is part of JSON in
    one place and a column in another is read as such objects.
    """
    logical = logical_type(schema) or ""
    if logical == "decimal":
        return _decimal(name, *(_digits(schema) or (1, 0)))
    if logical == "uuid":
        return Kind.UUID.field(name), _uuids
    if logical == "duration":
        return Kind.TEXT.field(name), _durations
    kind = pa.date32() if logical == "date" else pa.time64("us")
    if "timestamp-" in logical:
        kind = _moments(logical)
    of_numbers = numeric(schema)
    assert of_numbers is not None  # noqa: S101 - all others were made of bytes
    raw = pa.int32() if schema["type"] == "int" else pa.int64()
    return pa.field(name, kind), _builder(kind, raw, of_numbers)


def numeric(schema: Mapping[str, Any]) -> Callable[[pa.Array], pa.Array] | None:
    """Returns the function from numbers to a logical type's column; None if it is made of bytes."""
    logical = logical_type(schema) or ""
    if logical == "date":
        return lambda numbers: numbers.cast(pa.int32()).cast(pa.date32())
    factor = 1000 if logical.endswith("millis") else 1
    if logical.startswith("time-"):
        return lambda numbers: _time_of_day(numbers.cast(pa.int64()), factor)
    if "timestamp-" not in logical:
        return None
    kind = _moments(logical)
    return lambda numbers: _scale(numbers, factor).cast(kind)


def _moments(logical: str) -> pa.DataType:
    zone = None if logical.startswith("local-") else "UTC"
    return pa.timestamp("ns" if logical.endswith("nanos") else "us", zone)


def _scale(numbers: pa.Array, factor: int) -> pa.Array:
    return pc.multiply_checked(numbers, factor) if factor > 1 else numbers


def _time_of_day(numbers: pa.Array, factor: int) -> pa.Array:
    micros = pc.multiply(numbers, factor)
    inside = pc.and_(pc.greater_equal(micros, 0), pc.less(micros, _DAY))
    if not pc.all(inside, min_count=0).as_py():
        raise ValueError("a time outside the day")
    return micros.cast(pa.time64("us"))


def _builder(
    kind: pa.DataType, raw: pa.DataType, of_numbers: Callable[[pa.Array], pa.Array]
) -> Build:
    def build(values: Sequence[Any]) -> pa.Array:
        return of_numbers(pa.array(values, raw)) if _raw(values, int) else pa.array(values, kind)

    return build


def _raw(values: Sequence[Any], kind: type) -> bool:
    return isinstance(next((one for one in values if one is not None), None), kind | None)


def _uuids(values: Sequence[Any]) -> pa.Array:
    texts = pa.array([_uuid(one) for one in values], pa.string())
    if not all_have(UUID, texts):
        raise ValueError("no UUID")
    return texts


def _uuid(value: Any) -> str | None:
    if isinstance(value, bytes):
        return str(uuid.UUID(bytes=value))
    return value if value is None or isinstance(value, str) else str(value)


def _durations(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array([None if one is None else duration(one) for one in values], pa.string())


def duration(value: bytes) -> str:
    """Months, days and milliseconds as ISO 8601 writes them."""
    months, days, millis = unpack("<III", value)
    return f"P{months}M{days}DT{millis // 1000}.{millis % 1000:03}S"


def _decimal(name: str, precision: int, scale: int) -> Made:
    if precision > _MOST_DIGITS:
        field = Kind.NUMERIC.field(name)
        return field, lambda values: pa.array([_text(one, scale) for one in values], pa.string())
    short = precision <= _SHORT
    kind = (pa.decimal128 if short else pa.decimal256)(precision, scale)
    width, most = (16 if short else 32), 10**precision

    def build(values: Sequence[Any]) -> pa.Array:
        if not _raw(values, bytes):
            return pa.array(values, kind)
        return _pack(values, kind, width, most)

    return pa.field(name, kind), build


def _pack(values: Sequence[bytes | None], kind: pa.DataType, width: int, most: int) -> pa.Array:
    numbers = [0 if one is None else _integer(one) for one in values]
    if numbers and max(map(abs, numbers)) >= most:
        raise ValueError(f"a decimal of more than {kind.precision} digits")
    data = b"".join([one.to_bytes(width, "little", signed=True) for one in numbers])
    there = np.fromiter((one is not None for one in values), np.bool_, len(values))
    bits = np.packbits(there, bitorder="little").tobytes()
    return pa.Array.from_buffers(kind, len(values), [pa.py_buffer(bits), pa.py_buffer(data)])


def _integer(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _text(value: Any, scale: int) -> str | None:
    if value is None:
        return None
    exact = value if isinstance(value, Decimal) else Decimal(f"{_integer(value)}E-{scale}")
    return format(exact, "f")
