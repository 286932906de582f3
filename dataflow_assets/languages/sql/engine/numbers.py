"""Numbers as the types of SQL keep them: digits, bounds, and how texts are read."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from dataflow_assets.languages.sql.engine.types import BITS, FlinkType

_WHOLE = re.compile(r"([+-]?(?:[0-9]+|(?=\.[0-9])))(?:\.[0-9]*)?")
_HEX = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]{1,9})[dDfF]?"
)
_NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?)[dDfF]?")
_WORDS = re.compile(r"([+-]?(?:NaN|Infinity))")
_EXACT = Context(prec=80)  # of what is computed before a result is rounded to its own digits


def wrap_around(kind: str, value: int) -> int:
    """A whole number as Java keeps it: what does not fit begins again at the other end."""
    bits = BITS[kind]
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def bounds(kind: str) -> tuple[int, int]:
    """The least and the largest of a kind of whole numbers."""
    most = 1 << BITS[kind] - 1
    return -most, most - 1


def wrapper(kind: str) -> Callable[[int], int]:
    least, most = bounds(kind)
    return lambda value: value if least <= value <= most else wrap_around(kind, value)


def rounder(wanted: FlinkType) -> Callable[[Decimal], Decimal | None]:
    """Rounds decimals to a type's digits; null if there are more before the point."""
    unit, most = Decimal(1).scaleb(-wanted.scale), Decimal(1).scaleb(wanted.length - wanted.scale)

    def round_to_type(value: Decimal) -> Decimal | None:
        try:
            number = value.quantize(unit, ROUND_HALF_UP, _EXACT)
        except InvalidOperation:
            return None
        return positive_zero(number) if -most < number < most else None

    return round_to_type


def positive_zero(value: Decimal) -> Decimal:
    """A decimal as Java keeps it: its zero has no sign."""
    return value or value.copy_abs()


def single(value: float) -> float:
    try:
        number: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return number


def number_reader(wanted: FlinkType) -> Callable[[Any], Any]:
    """Reads numbers as Java does, with blanks around; the fraction of a whole number is cut.

    They raise ValueError for what is not a number, and for a number that does not fit.
    """
    make = numbers(wanted)
    shape = _WHOLE if wanted.integer else _NUMBER

    def read(text: str) -> Any:
        match = shape.fullmatch(text.strip())
        if match is not None:
            digits = match[1] if match[1].strip("+-") else "0"
            value = make(_in_bounds(Decimal(digits), wanted))
            if value is None:
                raise ValueError(f"the number does not fit into {wanted}")
            return value
        if wanted.kind not in ("FLOAT", "DOUBLE"):
            raise ValueError("the text is not a number")
        return make(_beside_digits(text.strip()))

    return read


def _beside_digits(text: str) -> float:
    """NaN, an infinity, or hexadecimal digits: what Java reads beside decimal ones."""
    if word := _WORDS.fullmatch(text):
        return float(word[1])
    digits = _HEX.fullmatch(text)
    if digits is None:
        raise ValueError("the text is not a number")
    try:
        return float.fromhex(digits[1])
    except OverflowError:
        return math.copysign(math.inf, -1 if text.startswith("-") else 1)


def _in_bounds(value: Decimal, wanted: FlinkType) -> Decimal:
    if wanted.integer:
        least, most = bounds(wanted.kind)
        if not least - 1 < value < most + 1:
            raise ValueError(f"the number does not fit into {wanted}")
    return value


def numbers(wanted: FlinkType) -> Callable[[Any], Any]:
    if wanted.kind == "DECIMAL":
        return _decimals(wanted)
    if wanted.kind == "DOUBLE":
        return float
    if wanted.kind == "FLOAT":
        return lambda value: single(float(value))
    wrap, kind = wrapper(wanted.kind), wanted.kind
    return lambda value: _clamp(value, kind) if isinstance(value, float) else wrap(int(value))


def _decimals(wanted: FlinkType) -> Callable[[Any], Any]:
    cut = rounder(wanted)

    def make(value: Any) -> Decimal | None:
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        return cut(exact) if exact.is_finite() else None

    return make


def _clamp(value: float, kind: str) -> int:
    if math.isnan(value):
        return 0
    bits = max(BITS[kind], 32)
    most = (1 << bits - 1) - 1
    whole = most if value >= most else -most - 1 if value <= -most - 1 else int(value)
    return wrap_around(kind, whole)
