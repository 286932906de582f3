"""Rows with a value that the server would change, or take for NULL: refused before the INSERT.

An INSERT casts what travels as text, and a cast is not strict: numbers of 128 and 256 bits wrap
around, and where the column may be NULL a bad address becomes that. Inside arrays, maps and tuples
the same rules hold as for plain columns.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.clickhouse.type_names import ClickhouseType
from dataflow_assets.connectors.clickhouse.types import CLICKHOUSE_TYPE, GEOMETRIES, fraction
from dataflow_assets.formats.iso_forms import has_more_digits
from dataflow_assets.sdk.key_folding import Bools, Ints, matrix

Unfit = Iterator[tuple[int, str]]
"""Indexes, and why the values there do not fit."""
Check = Callable[[ClickhouseType, pa.Array], Unfit]

_UNFILLED = frozenset({"Array", "Map", "Tuple", "Nested", *GEOMETRIES})
_BYTE = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"^{_BYTE}(\.{_BYTE}){{3}}$"
_FOUR = "[0-9a-fA-F]{1,4}"
_IPV6 = rf"^({_FOUR}(:{_FOUR}){{7}}|({_FOUR}(:{_FOUR}){{0,2}})?::({_FOUR}(:{_FOUR}){{0,3}})?)$"
"""The usual ones: all eight parts, or up to three and up to four."""
_LONGEST = 60  # characters of a value that a reason shows


def unfit(
    rows: pa.RecordBatch, schema: pa.Schema, checks: Mapping[str, Check] | None = None
) -> dict[int, str]:
    """By row why it cannot be stored as it is. Called inside tasks, for each batch.

    Args:
        rows: the sink's columns in their order, and ABSENT.
        schema: the sink's.
        checks: by type; EXACT also refuses what flows cut off as the server does.
    """
    checks = CHECKS if checks is None else checks
    reasons: dict[int, str] = {}
    numbers, masks = matrix(rows, len(schema))
    for index, field in enumerate(schema):
        text = (field.metadata or {}).get(CLICKHOUSE_TYPE)
        if text is None:
            continue
        kind, column = _type(text.decode()), rows.column(index)
        if column.null_count == 0 and _is_sound(kind, column, checks):
            continue
        absent = masks[numbers, index]
        for row, reason in (*_null(kind, column, absent), *_of(kind, column, checks)):
            reasons.setdefault(row, f"column {field.name}: {reason}")
    return reasons


@lru_cache(maxsize=4096)
def _type(text: str) -> ClickhouseType:
    return ClickhouseType.of(text)


@lru_cache(maxsize=4096)
def _names(kind: ClickhouseType) -> pa.Array:
    return pa.array(kind.names(), pa.string())


def _null(kind: ClickhouseType, column: pa.Array, absent: Bools) -> Unfit:
    """A null that was sent: what is absent has its default."""
    if not kind.nullable and column.null_count:
        sent = column.is_null().to_numpy(zero_copy_only=False) & ~absent
        yield from ((row, "must not be null") for row in _rows(sent))


def _is_sound(kind: ClickhouseType, column: pa.Array, checks: Mapping[str, Check]) -> bool:
    bare = kind.bare
    if pa.types.is_struct(column.type):
        inside = [(each, column.field(at)) for at, (_, each) in enumerate(bare.elements())]
    elif pa.types.is_map(column.type):
        inside = list(zip(map(_type, bare.arguments), (column.keys, column.items), strict=True))
    elif pa.types.is_list(column.type):
        inside = [(_element(bare), column.values)]
    else:
        return bare.name not in checks and bare.name not in _UNFILLED
    return all((k.nullable or not v.null_count) and _is_sound(k, v, checks) for k, v in inside)


def _element(bare: ClickhouseType) -> ClickhouseType:
    return (
        _type(bare.arguments[0])
        if bare.name == "Array"
        else ClickhouseType("Tuple", bare.arguments)
    )


def _of(kind: ClickhouseType, column: pa.Array, checks: Mapping[str, Check]) -> Unfit:
    bare = kind.bare
    if pa.types.is_nested(column.type):
        for inside, parents, values in _members(bare, column):
            if not inside.nullable and values.null_count:
                reason = f"holds null, and {inside.spelling} takes none"
                yield from ((int(parents[row]), reason) for row in _rows(values.is_null()))
            yield from ((int(parents[row]), why) for row, why in _of(inside, values, checks))
    elif bare.name in _UNFILLED:  # as JSON text
        reason = f"a flow cannot fill {kind.spelling}: give the column arrays, tuples or a String"
        yield from ((row, reason) for row in _rows(column.is_valid()))
    elif check := checks.get(bare.name):
        yield from check(bare, column)


def _members(
    bare: ClickhouseType, column: pa.Array
) -> Iterator[tuple[ClickhouseType, Ints, pa.Array]]:
    """The types inside, with their values and the index in the column of each value."""
    if pa.types.is_struct(column.type):
        present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        for (_, inside), values in zip(bare.elements(), column.flatten(), strict=True):
            yield inside, present, values.take(pa.array(present)) if column.null_count else values
    elif pa.types.is_map(column.type):
        taken, parents = _spans(column)
        for argument, values in zip(bare.arguments, (column.keys, column.items), strict=True):
            yield _type(argument), parents, values.take(pa.array(taken))
    else:
        parents = pc.list_parent_indices(column).to_numpy()
        yield _element(bare), parents, pc.list_flatten(column)


def _spans(column: pa.Array) -> tuple[Ints, Ints]:
    bounds = np.asarray(column.offsets)
    sizes = np.where(column.is_valid().to_numpy(zero_copy_only=False), np.diff(bounds), 0)
    parents = np.repeat(np.arange(len(sizes)), sizes)
    begins = np.repeat(bounds[:-1] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
    return begins + np.arange(len(parents)), parents


def _outside(low: Any, high: Any) -> Check:
    def check(kind: ClickhouseType, column: pa.Array) -> Unfit:
        del kind
        first, last = (pa.scalar(limit, column.type) for limit in (low, high))
        for row in _rows(pc.or_(pc.less(column, first), pc.greater(column, last))):
            yield row, f"{_text_of(column[row])} lies outside {low} to {high}"

    return check


def _text_of(value: pa.Scalar) -> str:
    """Python knows no times beyond the years 1 to 9999; Arrow writes them."""
    try:
        return str(value)
    except (OverflowError, ValueError):
        return str(value.cast(pa.string()))


def _whole(bits: int, *, signed: bool) -> Check:
    """Numbers of so many digits that one more may be too many are looked at one by one."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    short = rf"^{'-?' if signed else ''}\d{{1,{len(str(high)) - 1}}}$"

    def fits(text: str) -> bool:
        digits = text.removeprefix("-") if signed else text
        return digits.isdecimal() and len(digits) <= len(str(high)) and low <= int(text) <= high

    def check(kind: ClickhouseType, column: pa.Array) -> Unfit:
        for row in _rows(_mismatches(column, short)):
            if not fits(text := column[row].as_py()):
                yield row, f"{_show(text)} is no {kind.name}: whole numbers from {low} to {high}"

    return check


def _long(kind: ClickhouseType, column: pa.Array) -> Unfit:
    for row in _rows(pc.greater(pc.binary_length(column), int(kind.arguments[0]))):
        yield row, f"{_show(column[row].as_py())} is longer than the bytes of {kind.spelling}"


def _without_name(kind: ClickhouseType, column: pa.Array) -> Unfit:
    names = _names(kind)
    for row in _rows(pc.invert(pc.is_in(column, names, skip_nulls=False))):
        if (text := column[row].as_py()) is not None:
            yield row, f"{_show(text)} is none of the names of {_show(kind.spelling)}"


def _ipv4(kind: ClickhouseType, column: pa.Array) -> Unfit:
    del kind
    for row in _rows(_mismatches(column, _IPV4)):
        yield row, f"{_show(column[row].as_py())} is no IPv4 address"


def _ipv6(kind: ClickhouseType, column: pa.Array) -> Unfit:
    del kind
    for row in _rows(_mismatches(column, _IPV6)):
        if not _is_ipv6(text := column[row].as_py()):
            yield row, f"{_show(text)} is no IPv6 address"


def _is_ipv6(text: str) -> bool:
    """Also what is one of the older kind: it is stored as its IPv6 address."""
    if re.fullmatch(_IPV4, text):
        return True
    try:
        return bool(socket.inet_pton(socket.AF_INET6, text))
    except (OSError, ValueError):  # ValueError: the character NUL
        return False


def _time(kind: ClickhouseType, column: pa.Array) -> Unfit:
    digits = int(kind.arguments[0]) if kind.arguments else 3 if kind.name == "Time64" else 0
    fraction = rf"(\.\d{{1,{digits}}})?" if digits else ""
    for row in _rows(_mismatches(column, rf"^-?\d{{2,3}}:[0-5]\d:[0-5]\d{fraction}$")):
        yield (
            row,
            f"{_show(column[row].as_py())} is no {kind.spelling}: up to 999:59:59"
            + (f" with up to {digits} digits of a second" if digits else ""),
        )


_SECONDS = _outside(datetime(1970, 1, 1, tzinfo=UTC), datetime(2106, 2, 7, 6, 28, 15, tzinfo=UTC))
CHECKS: dict[str, Check] = {
    "Date": _outside(date(1970, 1, 1), date(2149, 6, 6)),
    **dict.fromkeys(("DateTime", "DateTime32"), _SECONDS),
    **{f"Int{bits}": _whole(bits, signed=True) for bits in (128, 256)},
    **{f"UInt{bits}": _whole(bits, signed=False) for bits in (128, 256)},
    "FixedString": _long,
    **dict.fromkeys(("Enum", "Enum8", "Enum16"), _without_name),
    "IPv4": _ipv4,
    "IPv6": _ipv6,
    **dict.fromkeys(("Time", "Time64"), _time),
}


def _cut(kind: ClickhouseType, column: pa.Array) -> Unfit:
    """Moments with more digits of a second than the type keeps."""
    kept = fraction(kind) if kind.name == "DateTime64" else 0
    for row in _rows(has_more_digits(column, kept)):
        yield row, f"{_text_of(column[row])} has more digits of a second than {kind.spelling}"


def _seconds(kind: ClickhouseType, column: pa.Array) -> Unfit:
    yield from _SECONDS(kind, column)
    yield from _cut(kind, column)


EXACT: Mapping[str, Check] = {
    **CHECKS,
    **dict.fromkeys(("DateTime", "DateTime32"), _seconds),
    "DateTime64": _cut,
}


def _mismatches(column: pa.Array, form: str) -> pa.Array:
    return pc.invert(pc.match_substring_regex(column, form))


def _rows(mask: pa.Array | Bools) -> list[int]:
    if isinstance(mask, pa.Array):
        mask = mask.fill_null(False).to_numpy(zero_copy_only=False)
    rows: list[int] = np.flatnonzero(mask).tolist()
    return rows


def _show(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
