"""Which times and moments a column of fewer digits of a second would round or cut off."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def has_more_digits(column: pa.Array, digits: int) -> pa.Array:
    """Marks times with more fractional digits of a second than `digits`; null stays null."""
    step = 10 ** max(0, _DIGITS[column.type.unit] - digits)
    counts = column.cast(pa.int64())
    return pc.not_equal(pc.multiply(pc.divide(counts, step), step), counts)
