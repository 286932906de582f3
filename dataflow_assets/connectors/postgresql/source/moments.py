"""Dates and times as PostgreSQL writes them, whatever their year."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MIDNIGHT = 86_400_000_000
_FAR = 294_246  # the last year that microseconds since 1970 can tell
_2000 = 946_684_800  # seconds since 1970
LIMIT = int(np.datetime64(str(_FAR + 1), "s").astype(np.int64)) * 1_000_000
"""The first microsecond since 1970 that does not fit."""
_INFINITE = ("infinity", "-infinity")


def moments(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Texts in Arrow: all at once, unless one is infinite, 24:00, or beyond the years 1 to 9999.

    Null for a time beyond the year 294246, the last one that microseconds since 1970 can tell.

    Called for values of the log, and for elements of arrays.

    Args:
        texts: as PostgreSQL writes them with `DateStyle` ISO, in UTC.
        wanted: the type in Arrow, a date, a time of day or a timestamp.
    """
    plain = texts
    if getattr(wanted, "tz", None):
        if not bool(pc.all(pc.ends_with(texts, "+00"), min_count=0).as_py()):
            return _one_by_one(texts, wanted)
        plain = pc.utf8_slice_codeunits(texts, 0, -3)
    elif pa.types.is_time(wanted):
        plain = pc.binary_join_element_wise("1970-01-01 ", texts, "")
    try:
        if pa.types.is_date(wanted):
            return plain.cast(wanted)
        return plain.cast(pa.timestamp("us")).cast(pa.int64()).view(wanted)
    except pa.ArrowInvalid:
        return _one_by_one(texts, wanted)


def far_moment(value: int) -> str:
    """A number of microseconds since 2000 that does not fit, as JSON has times.

    Called inside tasks, for values of a table's own format.
    """
    seconds, rest = divmod(value, 1_000_000)
    text = str(np.datetime64(seconds + _2000, "s"))
    return f"{text}.{rest:06}".rstrip("0") + "Z" if rest else f"{text}Z"


def beyond(texts: pa.Array, found: pa.Array) -> dict[int, str]:
    """Texts for which there is no moment, by row, as JSON has times.

    Called inside tasks, for values of the log.

    Args:
        texts: as they were read.
        found: what `moments` has made of them.
    """
    if found.null_count == texts.null_count:
        return {}
    lost = pc.and_(found.is_null(), texts.is_valid()).to_numpy(zero_copy_only=False)
    return {row: _iso(texts[row].as_py()) for row in np.flatnonzero(lost).tolist()}


def _iso(text: str) -> str:
    return text.removesuffix("+00").replace(" ", "T", 1) + "Z"


def _one_by_one(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    whole = pa.int32() if pa.types.is_date(wanted) else pa.int64()
    limits = np.iinfo(whole.to_pandas_dtype())
    infinite = dict(zip(_INFINITE, (limits.max, limits.min), strict=True))
    tell: Callable[[str], int | None] = (
        _time_of_day if pa.types.is_time(wanted) else _instant(wanted)
    )
    values = [
        None if text is None else infinite[text] if text in infinite else tell(text)
        for text in texts.to_pylist()
    ]
    return pa.array(values, whole).view(wanted)


def _time_of_day(text: str) -> int:
    if text.startswith("24:"):
        return _MIDNIGHT
    return int(np.datetime64(f"1970-01-01T{text}", "us").astype(np.int64))


def _instant(wanted: pa.DataType) -> Callable[[str], int | None]:
    unit = "D" if pa.types.is_date(wanted) else "us"

    def tell(text: str) -> int | None:
        moment, era, _ = text.partition(" BC")
        moment = moment.removesuffix("+00").replace(" ", "T")
        year, _, rest = moment.partition("-")
        number = 1 - int(year) if era else int(year)
        if unit == "us" and number > _FAR:
            return None
        written = f"{'-' if number < 0 else ''}{abs(number):04d}-{rest}"
        value = np.array([written], f"datetime64[{unit}]")
        return int(value.astype(np.int64)[0])

    return tell
