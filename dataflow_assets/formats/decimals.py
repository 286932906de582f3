"""Decimals of Arrow, each exactly the number that was sent.

Arrow rescales by a table of powers of ten and does not look whether it has the power: a number with
many more digits behind the point than its column ends the process, or becomes zero. So such numbers
get the digits of the column here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from decimal import MAX_EMAX, Clamped, Context, Decimal, DecimalException, Inexact, Rounded
from decimal import InvalidOperation as Invalid
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_POWERS = 38  # of ten that Arrow has for 128 bits
_WIDEST = 76  # digits of 256 bits
_SHORT = 70  # characters of a text without an exponent that Arrow rescales as 256 bits


def decimals(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The column of numbers and nulls.

    Args:
        cells: of Decimal, int or None.
        kind: a decimal type.

    Raises:
        ValueError: a number has digits that the type has no place for; pa.ArrowInvalid is one too.
        TypeError: a cell is something else.
    """
    numbers = [cell for cell in cells if cell is not None]
    try:
        deque(map(_near(kind.scale).plus, numbers), maxlen=0)
    except DecimalException:
        cells = [None if cell is None else _rescale(cell, kind.scale) for cell in cells]
    return pa.array(cells, kind)


def read_decimals(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column of numbers that are written in decimal, with or without an exponent.

    By way of 256 bits: Arrow looks for an overflow only between two decimals.

    Raises:
        ValueError: a text is no number, or one that the type has no place for.
    """
    far = pc.or_(
        pc.greater(pc.binary_length(texts), _SHORT),
        pc.match_substring(texts, "e", ignore_case=True),
    )
    if pc.any(far).as_py():
        pairs = zip(texts.to_pylist(), far.to_pylist(), strict=True)
        plain = [
            format(_rescale(text, kind.scale), "f") if is_far else text for text, is_far in pairs
        ]
        texts = pa.array(plain, texts.type)
    return texts.cast(pa.decimal256(_WIDEST, kind.scale)).cast(kind)


def _rescale(number: Decimal | int | str, scale: int) -> Decimal:
    try:
        return Decimal(number).quantize(Decimal(1).scaleb(-scale), context=_exact())
    except Inexact:
        raise ValueError(f"a number has more than {scale} digits behind the point") from None
    except Invalid:
        raise ValueError(f"not a number of at most {_WIDEST} digits") from None


@cache
def _exact() -> Context:
    return Context(prec=_WIDEST, Emax=MAX_EMAX, traps=[Inexact, Invalid])


@cache
def _near(scale: int) -> Context:
    """Signals a number whose last digit is too far behind the point of the column."""
    return Context(prec=scale + _POWERS + 1, Emin=0, Emax=MAX_EMAX, traps=[Rounded, Clamped])
