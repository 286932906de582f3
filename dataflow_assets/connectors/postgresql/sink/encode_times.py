"""Dates and times as PostgreSQL's text, where Arrow would write them otherwise or not at all.

Two values are infinite, years before 1 have another name, those beyond 9999 more digits, and a day
may end at 24:00.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_DAY = 86_400_000_000  # microseconds
_YEARS = (-719_162, 2_932_896)  # the days of 0001-01-01 and 9999-12-31, since 1970


def moments(values: pa.Array) -> pa.Array:
    """Arrow's own writing is sound for nearly all; then the values stay as they are."""
    if pa.types.is_time(values.type):
        return _times(values)
    days = pa.types.is_date32(values.type)
    numbers = values.view(pa.int32() if days else pa.int64()).fill_null(0).to_numpy()
    unit = 1 if days else _DAY
    odd = (numbers < _YEARS[0] * unit) | (numbers >= (_YEARS[1] + 1) * unit)
    if not odd.any():
        return values
    texts = pc.if_else(pa.array(odd), None, values).cast(pa.string()).to_pylist()
    for row in np.flatnonzero(odd).tolist():
        texts[row] = _write(int(numbers[row]), np.iinfo(numbers.dtype), unit)
    return pa.array(texts, pa.string())


def _times(values: pa.Array) -> pa.Array:
    late = pc.equal(values.view(pa.int64()), _DAY)
    if not pc.any(late).as_py():
        return values
    return pc.if_else(late, "24:00:00", pc.if_else(late, None, values).cast(pa.string()))


def _write(number: int, limits: np.iinfo, unit: int) -> str:
    if number in (limits.min, limits.max):
        return "infinity" if number == limits.max else "-infinity"
    days, rest = divmod(number, unit)
    year, month, day = _civil(days)
    date = f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}"
    minutes, micros = divmod(rest, 60_000_000)
    time = f" {minutes // 60:02d}:{minutes % 60:02d}:{micros // 10**6:02d}.{micros % 10**6:06d}"
    return f"{date}{time if unit == _DAY else ''}{'' if year > 0 else ' BC'}"


def _civil(days: int) -> tuple[int, int, int]:
    """Year (0 is the one before 1), month and day, by the calendar's 400 years of 146,097 days."""
    era, of_era = divmod(days + 719_468, 146_097)  # eras begin on the first of March
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year + era * 400 + (month <= 2), month, day
