"""Digits in text as `numeric_recv` reads them: every digit kept, and the scale they were sent in.

A column's usual values are packed at once, all in as many groups of four digits as the longest
needs: the server drops the zeros around them. It rounds to the column's own scale itself.
"""

from __future__ import annotations

import re
import struct
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.formats.text_forms import all_have

_USUAL = r"^-?[0-9]{1,38}(\.[0-9]{1,38})?$"
_ODD = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BLANKS = " \t\n\r\v\f"
_INFINITIES = {"inf": 0xD000, "+inf": 0xD000, "-inf": 0xF000}
_SPECIAL = {"nan": 0xC000, **_INFINITIES, **{f"{n}inity": c for n, c in _INFINITIES.items()}}
_NEGATIVE = 0x4000
_MOST_SCALE, _MOST_WEIGHT = 16_383, 32_767

Numbers = npt.NDArray[Any]


def numerics(values: pa.Array, name: str) -> pa.Array:
    """Text as numeric's binary form; raises Failure where PostgreSQL would refuse the text."""
    found = usual(values)
    if found is not None:
        return found
    texts = values.fill_null("0")
    plain = pc.match_substring_regex(texts, _USUAL)
    cells = _pack(pc.if_else(plain, texts, "0"), values).to_pylist()
    for index in np.flatnonzero(~plain.to_numpy(zero_copy_only=False)).tolist():
        cells[index] = _single(texts[index].as_py(), name)
    return pa.array(cells, pa.binary())


def usual(values: pa.Array) -> pa.Array | None:
    """The same at once; None where one of them has another form than digits usually have."""
    if values.null_count == len(values):
        return pa.nulls(len(values), pa.binary())
    texts = values.fill_null("0")
    return _pack(texts, values) if all_have(_USUAL, texts) else None


def _pack(texts: pa.Array, values: pa.Array) -> pa.Array:
    """All in the same width; null where the values are."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters, starts, ends = np.frombuffer(data, np.uint8), bounds[:-1], bounds[1:]
    minus = letters[starts] == ord("-")
    found = pc.find_substring(texts, ".").to_numpy()
    point = np.where(found < 0, ends, starts + found)
    whole, scale = point - starts - minus, np.maximum(ends - point - 1, 0)
    left = _groups(letters, point - 1, -1, whole)[::-1]
    right = _groups(letters, point + 1, 1, scale)
    head = [np.full(len(texts), len(left) + len(right)), np.full(len(texts), len(left) - 1)]
    rows = np.stack([*head, minus * _NEGATIVE, scale, *left, *right], axis=1).astype(">u2")
    valid = np.packbits(values.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    buffers = [pa.py_buffer(valid) if values.null_count else None, pa.py_buffer(rows)]
    width = pa.binary(rows.shape[1] * 2)
    return pa.FixedSizeBinaryArray.from_buffers(width, len(texts), buffers)


def _groups(letters: Numbers, first: Numbers, step: int, count: Numbers) -> list[Numbers]:
    """Groups of four digits, from the point outwards; `count` digits of each row."""
    most = int(count.max())
    groups = [np.zeros(len(count), np.uint16) for _ in range(0, most, 4)]
    for place in range(most):
        power = 10 ** (place % 4 if step < 0 else 3 - place % 4)
        digit = letters.take(first + step * place, mode="clip") - np.uint8(ord("0"))
        groups[place // 4] += digit * np.uint16(power) * (count > place)
    return groups


def _single(text: str, name: str) -> bytes:
    """Exponents, very long numbers, and what only tables deliver; refused as `numeric_in` would."""
    bare = text.strip(_BLANKS)
    if bare.lower() in _SPECIAL:
        return struct.pack(">HhHH", 0, 0, _SPECIAL[bare.lower()], 0)
    if not _ODD.fullmatch(bare):
        message = f'invalid input syntax for type numeric: "{text}"'
        raise PostgresqlFailure(message, "22P02", column=name)
    try:
        sign, digits, exponent = Decimal(bare).as_tuple()
    except InvalidOperation:  # an exponent beyond all measure
        raise _overflow(name) from None
    assert isinstance(exponent, int)  # noqa: S101 - the pattern has no NaN
    found = _encode(sign, "".join(map(str, digits)), exponent)
    if found is None:
        raise _overflow(name)
    return found


def _overflow(name: str) -> PostgresqlFailure:
    return PostgresqlFailure("value overflows numeric format", "22003", column=name)


def _encode(sign: int, digits: str, exponent: int) -> bytes | None:
    """The number's binary form; None when no numeric can hold it."""
    if exponent < -_MOST_SCALE:
        return None
    if not digits.strip("0"):
        digits, exponent = "", min(exponent, 0)
    digits += "0" * (exponent % 4 if digits else 0)
    digits = digits.zfill(-(-len(digits) // 4) * 4)
    groups = [int(digits[at : at + 4]) for at in range(0, len(digits), 4)]
    weight = len(groups) - 1 + exponent // 4 if groups else 0
    if weight > _MOST_WEIGHT:
        return None
    head = (len(groups), weight, _NEGATIVE if sign else 0, max(-exponent, 0))
    return struct.pack(f">HhHH{len(groups)}H", *head, *groups)
