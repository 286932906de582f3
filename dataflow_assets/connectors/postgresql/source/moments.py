"""Dates and times as PostgreSQL writes them, whatever their year."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.errors import PermanentError

_MIDNIGHT = 86_400_000_000
_FAR = 294_246  # the last year that microseconds since 1970 can tell
_INFINITE = ("infinity", "-infinity")


def moments(texts: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    """Texts in Arrow: all at once, unless one is infinite, 24:00, or beyond the years 1 to 9999.

    Called for values of the log, and for elements of arrays.

    Args:
        texts: as PostgreSQL writes them with `DateStyle` ISO, in UTC.
        wanted: the type in Arrow, a date, a time of day or a timestamp.
        name: the column's, for messages.

    Raises:
        PermanentError: a value that Arrow cannot hold.
    """
    plain = texts
    if getattr(wanted, "tz", None):
        if not _all(pc.ends_with(texts, "+00")):
            return _one_by_one(texts, wanted, name)
        plain = pc.utf8_slice_codeunits(texts, 0, -3)
    elif pa.types.is_time(wanted):
        plain = pc.binary_join_element_wise("1970-01-01 ", texts, "")
    try:
        if pa.types.is_date(wanted):
            return plain.cast(wanted)
        return plain.cast(pa.timestamp("us")).cast(pa.int64()).view(wanted)
    except pa.ArrowInvalid:
        return _one_by_one(texts, wanted, name)


def _all(mask: pa.Array) -> bool:
    return bool(pc.all(mask, min_count=0).as_py())


def _one_by_one(texts: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    whole = pa.int32() if pa.types.is_date(wanted) else pa.int64()
    limits = np.iinfo(whole.to_pandas_dtype())
    infinite = dict(zip(_INFINITE, (limits.max, limits.min), strict=True))
    tell = _time_of_day if pa.types.is_time(wanted) else _instant(wanted, name)
    values = [
        None if text is None else infinite[text] if text in infinite else tell(text)
        for text in texts.to_pylist()
    ]
    return pa.array(values, whole).view(wanted)


def _time_of_day(text: str) -> int:
    if text.startswith("24:"):
        return _MIDNIGHT
    return int(np.datetime64(f"1970-01-01T{text}", "us").astype(np.int64))


def _instant(wanted: pa.DataType, name: str) -> Callable[[str], int]:
    unit = "D" if pa.types.is_date(wanted) else "us"

    def tell(text: str) -> int:
        moment, era, _ = text.partition(" BC")
        moment = moment.removesuffix("+00").replace(" ", "T")
        year, _, rest = moment.partition("-")
        number = 1 - int(year) if era else int(year)
        if unit == "us" and number > _FAR:
            raise PermanentError(
                f"column {name} holds a time beyond the year {_FAR}, the last one that "
                "microseconds since 1970 can express"
            )
        written = f"{'-' if number < 0 else ''}{abs(number):04d}-{rest}"
        found = np.array([written], f"datetime64[{unit}]")
        return int(found.astype(np.int64)[0])

    return tell
