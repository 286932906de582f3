"""RFC 3339 text to timestamps, a column at once.

The decoder hands timestamps over as text: Arrow reads a column of them in a tenth of the time that
a datetime for each value takes. Arrow allows more forms than RFC 3339 and no more than six digits
of a second, so it is asked only where every value has one of the forms on which both agree. All
others are read one by one, as the decoder itself would have read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.json_types import value_type
from dataflow_assets.records.times.instant import read

_SHORTEST = 19  # of 2026-11-21T10:00:00
_LONGEST = {"us": 26, "ns": 29}  # with a fraction of 6 or 9 digits; shorter ones are fine
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_T, _COLON, _PLUS, _MINUS, _ZULU, _ONE, _EIGHT = b"T:+-Z18"

Ints = npt.NDArray[np.int64]


def as_text(field: pa.Field) -> pa.Field:
    """The column as the decoder shall read it: text where `times` will read it."""
    return field.with_type(pa.string()) if served(field.type) else field


def times(field: pa.Field, cells: Sequence[str | None]) -> pa.Array:
    """The column of timestamps, from text that RFC 3339 allows."""
    texts, unit = pa.array(cells, pa.string()), field.type.unit
    for zone in ("UTC",) if field.type.tz else ("UTC", None):
        if _regular(texts.drop_null(), _LONGEST[unit], zoned=zone is not None):
            try:
                return texts.cast(pa.timestamp(unit, zone)).cast(field.type)
            except pa.ArrowInvalid:  # the 30th of February
                break
    found = msgspec.convert(cells, list[value_type(field) | None])  # type: ignore[misc]
    if unit == "ns":  # datetime knows no finer unit than microseconds
        return pa.array([text and _nanoseconds(text) for text in cells], pa.int64()).cast(
            field.type
        )
    return pa.array(found, field.type)


def served(kind: pa.DataType) -> bool:
    """True for the timestamps that are read here."""
    return bool(pa.types.is_timestamp(kind) and kind.unit in _LONGEST)


def _nanoseconds(text: str) -> int:
    """Since 1970. Raises RejectedRecord for a digit beyond."""
    instant = read(text, UTC)
    if len(instant.fraction) > 9:
        raise RejectedRecord("decode", "a time with more than 9 digits of a second")
    seconds = (instant.second - _EPOCH) // timedelta(seconds=1)
    return seconds * 10**9 + int(instant.fraction.ljust(9, "0"))


def _regular(texts: pa.Array, longest: int, *, zoned: bool) -> bool:
    """True when all are `YYYY-MM-DDThh:mm:ss[.f]`, with `Z` or `±hh:mm` where zoned.

    Only the bytes that tell this form from Arrow's others are looked at: Arrow checks the rest.
    Years stay clear of those that datetime cannot hold.
    """
    if len(texts) == 0:
        return True
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    starts, ends = bounds[:-1], bounds[1:]
    if (ends - starts).min() < _SHORTEST:
        return False
    letters = np.frombuffer(data, np.uint8)
    sizes = ends - starts - (_zone(letters, ends) if zoned else 0)
    year = letters[starts]
    return bool(
        np.all((sizes >= _SHORTEST) & (sizes <= longest) & (year >= _ONE) & (year <= _EIGHT))
        and np.all((letters[starts + 10] == _T) & (letters[starts + 16] == _COLON))
    )


def _zone(letters: npt.NDArray[np.uint8], ends: npt.NDArray[np.int32]) -> Ints:
    """How long the zone at the end of each text is; beyond all measure where there is none."""
    sign, colon = letters[ends - 6], letters[ends - 3] == _COLON
    offset = colon & ((sign == _PLUS) | (sign == _MINUS))
    return np.where(letters[ends - 1] == _ZULU, 1, np.where(offset, 6, 99))
