"""Spellings of ISO 8601 beside the usual one, and the digits of their seconds."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

DAY = 86_400_000_000  # microseconds
_BASIC_DATE = (r"^([0-9]{4})([0-9]{2})([0-9]{2})$", r"\1-\2-\3")
_MOMENT = (
    # 20230128T101112
    (r"^([0-9]{4})([0-9]{2})([0-9]{2}[Tt ])([0-9]{2})([0-9]{2})([0-9]{2})", r"\1-\2-\3\4:\5:\6"),
    (r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[t ]", r"\1T"),
    (r"(:[0-9]{2}(?:\.[0-9]+)?)z$", r"\1Z"),
    (r"(:[0-9]{2}(?:\.[0-9]+)?[+-][0-9]{2})$", r"\1:00"),
    (r"(:[0-9]{2}(?:\.[0-9]+)?[+-][0-9]{2})([0-9]{2})$", r"\1:\2"),
)
_OF_DAY = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|[+-]00(?::?00)?)?", re.ASCII)
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def with_usual_form(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Dates as 2026-01-31, timestamps as 2026-01-31T23:59:59+05:30; what is neither stays."""
    if pa.types.is_timestamp(kind):
        for form, usual in _MOMENT:
            texts = pc.replace_substring_regex(texts, form, usual)
    elif pa.types.is_date(kind):
        texts = pc.replace_substring_regex(texts, *_BASIC_DATE)
    return texts


def day_micros(text: str) -> int:
    """Microseconds since midnight, rounded; at most those of a day. Raises ValueError.

    A zone other than UTC has no meaning without a date, and is no part of a time of day.
    """
    match = _OF_DAY.fullmatch(text)
    if match is None:
        raise ValueError(text)
    hours, minutes, seconds = (int(match[part]) for part in (1, 2, 3))
    if minutes > 59 or seconds > 59:
        raise ValueError(text)
    digits = (match[4] or "").ljust(7, "0")
    fraction = int(digits[:6]) + (digits[6] >= "5")
    micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction
    if micros > DAY:
        raise ValueError(text)
    return micros


def has_more_digits(column: pa.Array, digits: int) -> pa.Array:
    """Marks times with more fractional digits of a second than `digits`; null stays null."""
    step = 10 ** max(0, _DIGITS[column.type.unit] - digits)
    counts = column.cast(pa.int64())
    return pc.not_equal(pc.multiply(pc.divide(counts, step), step), counts)
