"""Values of rows as bytes that are equal where Flink groups them together, and back again.

Keys of groups and all that is kept about them are such bytes. Each value has a *plain* form first,
which msgpack can write and which has the order of the values: floating numbers are whole ones of
the same order (-0.0 before 0.0, NaN the largest and equal to itself, as Java compares them),
decimals are counted in units of their last digit, times in microseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from functools import partial
from typing import Any

import msgspec

from dataflow_assets.languages.sql.engine.types import FlinkType

Change = Callable[[Any], Any]
_EXACT = Context(prec=80)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
_MICRO = timedelta(microseconds=1)
_LIST = b"\xdd"
"""What msgpack writes in front of a long list and its length in four bytes."""
_LARGE = 1
"""The code of whole numbers that msgpack has no form for."""


def pack(value: Any) -> bytes:
    """Plain values as bytes: lists, texts, bytes, booleans, nulls, whole numbers of any size."""
    try:
        return _encode(value)
    except OverflowError:
        return _encode(_with_large(value))


def pack_rows(columns: Sequence[Sequence[Any]]) -> list[bytes]:
    """Rows of plain values, given by their columns, each as bytes of its own."""
    try:
        return list(map(_encode, zip(*columns, strict=True)))
    except OverflowError:
        return list(map(pack, zip(*columns, strict=True)))


def unpack(packed: bytes) -> Any:
    return _decode(packed)


def unpack_all(packed: Iterable[bytes]) -> list[Any]:
    return list(map(_decode, packed))


def unpack_columns(packed: Sequence[bytes], width: int) -> list[list[Any]]:
    """Rows of so many values each, column by column.

    They are decoded as one list: a list for each row would keep the garbage collector busy.
    """
    head = len(pack([None] * width)) - width
    values = b"".join([one[head:] for one in packed])
    columns = _decode(_LIST + (len(packed) * width).to_bytes(4, "big") + values)
    return [columns[at::width] for at in range(width)]


def _with_large(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_with_large(one) for one in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        size = value.bit_length() // 8 + 1
        return msgspec.msgpack.Ext(_LARGE, value.to_bytes(size, "big", signed=True))
    return value


def _large(code: int, data: memoryview) -> int:
    assert code == _LARGE  # noqa: S101 - there is no other
    return int.from_bytes(data, "big", signed=True)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ext_hook=_large).decode


class Codec:
    """Rows of given types, to plain values and to bytes."""

    def __init__(self, types: Sequence[FlinkType], *, keys: bool = False) -> None:
        """`keys`: of groups, whose -0.0 is 0.0, as databases find them equal."""
        self._to = [plain(one, keys=keys) for one in types]
        self._from = [value_of(one) for one in types]
        self._same = all(one is _same for one in self._to)

    def plain(self, values: Sequence[Any]) -> Sequence[Any]:
        if self._same:
            return values
        pairs = zip(self._to, values, strict=True)
        return [None if value is None else to(value) for to, value in pairs]

    def values(self, given: Sequence[Any]) -> Sequence[Any]:
        if self._same:
            return given
        pairs = zip(self._from, given, strict=True)
        return [None if value is None else of(value) for of, value in pairs]

    def pack(self, values: Sequence[Any]) -> bytes:
        return pack(self.plain(values))

    def unpack(self, packed: bytes) -> Sequence[Any]:
        return self.values(unpack(packed))

    def pack_all(self, columns: Sequence[Sequence[Any]], count: int) -> list[bytes]:
        if not columns:
            return [pack(())] * count
        pairs = zip(self._to, columns, strict=True)
        return pack_rows([_column(to, one) for to, one in pairs])


def _column(to: Change, values: Sequence[Any]) -> Sequence[Any]:
    if to is _same:
        return values
    return [None if value is None else to(value) for value in values]


def _same(value: Any) -> Any:
    """Texts, bytes, booleans and whole numbers are plain values."""
    return value


def plain(kind: FlinkType, *, keys: bool = False) -> Change:
    """Returns what makes a plain value of a value that is not null; `keys`: as Codec has it."""
    if kind.kind in ("FLOAT", "DOUBLE"):
        return _positive if keys else order_preserving
    if kind.kind == "DECIMAL":
        scale = kind.scale
        return lambda value: int(value.scaleb(scale, _EXACT))
    if kind.kind == "DATE":
        return date.toordinal
    if kind.kind == "TIME":
        return lambda value: (
            ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
        )
    if kind.kind == "TIMESTAMP":
        return lambda value: (value - _EPOCH) // _MICRO
    if kind.kind == "TIMESTAMP_LTZ":
        return lambda value: (value.astimezone(UTC).replace(tzinfo=None) - _EPOCH) // _MICRO
    if kind.items:
        return _change_nested(kind, partial(plain, keys=keys))
    return _same


def value_of(kind: FlinkType) -> Change:
    """Returns what makes the value of a plain one that is not null."""
    if kind.kind in ("FLOAT", "DOUBLE"):
        return _from_ordered
    if kind.kind == "DECIMAL":
        scale = kind.scale
        return lambda value: Decimal(value).scaleb(-scale, _EXACT)
    if kind.kind == "DATE":
        return date.fromordinal
    if kind.kind == "TIME":
        return lambda value: (_EPOCH + value * _MICRO).time()
    if kind.kind == "TIMESTAMP":
        return lambda value: _EPOCH + value * _MICRO
    if kind.kind == "TIMESTAMP_LTZ":
        return lambda value: (_EPOCH + value * _MICRO).replace(tzinfo=UTC)
    if kind.items:
        return _change_nested(kind, value_of)
    return _same


def _change_nested(kind: FlinkType, change: Callable[[FlinkType], Change]) -> Change:
    inner = [change(one) for one in kind.items]
    if kind.kind == "MAP":
        return _map(inner[0], inner[1])
    each = inner

    def convert(value: Sequence[Any]) -> list[Any]:
        members = each if kind.kind == "ROW" else each * len(value)
        pairs = zip(members, value, strict=True)
        return [None if one is None else to(one) for to, one in pairs]

    return convert


def _map(key: Change, item: Change) -> Change:
    def convert(value: Any) -> Any:
        pairs = value.items() if isinstance(value, dict) else value
        entries = [(_or_null(key, one), _or_null(item, other)) for one, other in pairs]
        return entries if isinstance(value, dict) else dict(entries)

    return convert


def _or_null(change: Change, value: Any) -> Any:
    return None if value is None else change(value)


def order_preserving(value: float) -> int:
    """A floating number as a whole one: in the same order, each NaN the same."""
    if value != value:  # noqa: PLR0124 - NaN
        return (1 << 63) - 1
    bits: int = struct.unpack(">q", struct.pack(">d", value))[0]
    return bits if bits >= 0 else -(bits & (1 << 63) - 1) - 1


def _positive(value: float) -> int:
    return order_preserving(value + 0.0)  # which is 0.0 where it was -0.0


def _from_ordered(value: int) -> float:
    if value == (1 << 63) - 1:
        return float("nan")
    bits = value if value >= 0 else (-value - 1) | 1 << 63
    number: float = struct.unpack(">d", struct.pack(">Q", bits))[0]
    return number
