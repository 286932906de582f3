"""RFC 3339 text to timestamps, a column at once.

The decoder hands timestamps over as text: Arrow reads a column of them in a tenth of the time that
a datetime for each value takes. Arrow allows more forms than RFC 3339 and no more than six digits
of a second, so it is asked only where every value has one of the forms on which both agree. All
others are read one by one, as the decoder itself would have read them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow_assets.formats.json_types import value_type

_SHORTEST, _LONGEST = 19, 26  # of 2026-11-21T10:00:00.123456; shorter fractions are fine
_T, _COLON, _PLUS, _MINUS, _ZULU, _ONE, _EIGHT = b"T:+-Z18"

Ints = npt.NDArray[np.int64]


def as_text(field: pa.Field) -> pa.Field:
    """The column as the decoder shall read it: text where `times` will read it."""
    return field.with_type(pa.string()) if served(field.type) else field


def times(field: pa.Field, cells: Sequence[str | None]) -> pa.Array:
    """The column of timestamps, from text that RFC 3339 allows."""
    texts = pa.array(cells, pa.string())
    for zone in ("UTC",) if field.type.tz else ("UTC", None):
        if _regular(texts.drop_null(), zoned=zone is not None):
            try:
                return texts.cast(pa.timestamp("us", zone)).cast(field.type)
            except pa.ArrowInvalid:  # the 30th of February
                break
    return pa.array(msgspec.convert(cells, list[value_type(field) | None]), field.type)  # type: ignore[misc]


def served(kind: pa.DataType) -> bool:
    """True for the timestamps that are read here; datetime knows no finer unit."""
    return bool(pa.types.is_timestamp(kind) and kind.unit == "us")


def _regular(texts: pa.Array, *, zoned: bool) -> bool:
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
        np.all((sizes >= _SHORTEST) & (sizes <= _LONGEST) & (year >= _ONE) & (year <= _EIGHT))
        and np.all((letters[starts + 10] == _T) & (letters[starts + 16] == _COLON))
    )


def _zone(letters: npt.NDArray[np.uint8], ends: npt.NDArray[np.int32]) -> Ints:
    """How long the zone at the end of each text is; beyond all measure where there is none."""
    sign, colon = letters[ends - 6], letters[ends - 3] == _COLON
    offset = colon & ((sign == _PLUS) | (sign == _MINUS))
    return np.where(letters[ends - 1] == _ZULU, 1, np.where(offset, 6, 99))
