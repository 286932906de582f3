"""ISO 8601 text to dates, times of day and timestamps, a column at once.

The decoder hands times over as text: Arrow reads a column of them in a tenth of the time that a
datetime for each value takes. Arrow allows more forms than we do and no more than six digits of a
second, so it is asked only where every value has the usual form. Other spellings of RFC 3339 and
ISO 8601 (`+02`, `+0530`, a blank for T, 20230128) are rewritten first, a column at once too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import Note
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.iso_forms import DAY, day_micros, with_usual_form
from dataflow_assets.formats.json_types import value_type
from dataflow_assets.records.times.instant import read

_SHORTEST = 19  # of 2026-11-21T10:00:00
_LONGEST = {"us": 26, "ns": 29}  # with a fraction of 6 or 9 digits; shorter ones are fine
_DATE, _TIME = 10, (8, 15)  # how long dates and times of day are
_FAR = re.compile(
    r"([+-]\d{4,6}|\d{5,6}|0000)-\d\d-\d\d(T\d\d:\d\d:\d\d(?:\.\d{1,6})?Z?)?", re.ASCII
)
_LAST_YEAR = 290_000  # that microseconds since 1970 can express, both ways
YEARS = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds from 1970 to the first one of the year 1, and to the last one of the year 9999: what
Python's own times hold, which client libraries use."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_T, _COLON, _PLUS, _MINUS, _ZULU, _ONE, _EIGHT = b"T:+-Z18"
_EXPECTED = {
    "date": "expected a date, like 2026-01-31",
    "time": "expected a time of day without a zone, like 23:59:59.5",
    "naive": "expected a time, like 2026-01-31T23:59:59",
    "aware": "expected a time with a timezone, like 2026-01-31T23:59:59Z",
}
_REACH = ", from 1677-09-21 to 2262-04-11"  # of nanoseconds in 64 bits

Ints = npt.NDArray[np.integer[Any]]
Texts = Sequence[str | None]
Usual = Callable[[pa.Array, pa.Field], pa.Array | None]
Single = Callable[[Texts, pa.Field], pa.Array]


def as_text(field: pa.Field) -> pa.Field:
    """The column as the decoder shall read it: times are texts, also inside lists and structs."""
    return field.with_type(_text_type(field.type))


def _text_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([as_text(child) for child in kind])
    if pa.types.is_list(kind):
        return pa.list_(as_text(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(as_text(kind.key_field), as_text(kind.item_field))
    return pa.string() if is_served(kind) else kind


def is_served(kind: pa.DataType) -> bool:
    """True for the dates and times that `times` reads."""
    units = pa.types.is_timestamp(kind) and kind.unit in _LONGEST
    return bool(units or kind in (pa.date32(), pa.time64("us")))


def word(kind: pa.DataType) -> str | None:
    """Returns the decoder's word for a time, also inside a list; None for other types."""
    if pa.types.is_list(kind):
        return word(kind.value_type)
    if not is_served(kind):
        return None
    return "datetime" if pa.types.is_timestamp(kind) else str(kind)[:4]


def times(field: pa.Field, cells: Texts) -> pa.Array:
    """The column, from text. Raises RejectedRecord where one of the texts is no such time."""
    if pa.types.is_timestamp(field.type):
        usual, single, kind = _timestamps, _timestamp, "aware" if field.type.tz else "naive"
    elif pa.types.is_date(field.type):
        usual, single, kind = _dates, _date, "date"
    else:
        usual, single, kind = _times_of_day, _time_of_day, "time"
    texts = pa.array(cells, pa.string())
    moments = usual(texts, field)
    if moments is not None:
        return moments
    endless = _endless(field)
    kept = _without_endless(texts, endless)
    try:
        moments = _read(kept, field, usual, single)
    except (ValueError, OverflowError, pa.ArrowException):
        finest = pa.types.is_timestamp(field.type) and field.type.unit == "ns"
        raise RejectedRecord("decode", _EXPECTED[kind] + _REACH * finest) from None
    return _with_endless(moments, texts, endless) if kept.null_count > texts.null_count else moments


def _read(texts: pa.Array, field: pa.Field, usual: Usual, single: Single) -> pa.Array:
    """Other spellings are looked for where the parsers refuse a text as it is."""
    try:
        return single(texts.to_pylist(), field)
    except (ValueError, OverflowError, pa.ArrowException):
        texts = with_usual_form(texts, field.type)
    moments = usual(texts, field)
    if moments is not None:
        return moments
    try:
        return single(texts.to_pylist(), field)
    except (ValueError, OverflowError, pa.ArrowException):
        if not _endless(field) or getattr(field.type, "unit", "us") == "ns":
            raise  # nanoseconds end in 2262
    return _with_far(texts, field, usual, single)


def _with_far(texts: pa.Array, field: pa.Field, usual: Usual, single: Single) -> pa.Array:
    """Texts some of which lie beyond the years 1 to 9999: the others are read as a column."""
    far = pc.match_substring_regex(texts, f"^(?:{_FAR.pattern})$").fill_null(False)
    if not far.true_count:
        raise ValueError(f"{field.name}: none of the texts is of a far year")
    near = pc.if_else(far, None, texts)
    column = usual(near, field)
    if column is None:
        column = single(near.to_pylist(), field)
    moments = [_far(text, field) for text in texts.filter(far).to_pylist()]
    whole = pa.int32() if pa.types.is_date(field.type) else pa.int64()
    return pc.replace_with_mask(column.view(whole), far, pa.array(moments, whole)).view(field.type)


def _far(text: str, field: pa.Field) -> int:
    """One moment that may lie beyond the years 1 to 9999, as it is written of a table's row."""
    form, is_date = _FAR.fullmatch(text), pa.types.is_date(field.type)
    if form is None or abs(int(form[1])) > _LAST_YEAR or is_date != (form[2] is None):
        raise ValueError(text)
    if not is_date and field.type.tz and not text.endswith("Z"):
        raise ValueError(text)
    moment = np.datetime64(text.removesuffix("Z"), "D" if is_date else field.type.unit)
    return int(moment.astype(np.int64))


def _timestamps(texts: pa.Array, field: pa.Field) -> pa.Array | None:
    unit = field.type.unit
    for zone in ("UTC",) if field.type.tz else ("UTC", None):
        if _regular(texts, _LONGEST[unit], zoned=zone is not None):
            try:
                return texts.cast(pa.timestamp(unit, zone)).cast(field.type)
            except pa.ArrowInvalid:  # the 30th of February
                break
    return None


def _timestamp(texts: Texts, field: pa.Field) -> pa.Array:
    values = msgspec.convert(texts, list[value_type(field) | None])  # type: ignore[misc]
    if field.type.unit == "ns":  # datetime knows no finer unit than microseconds
        numbers = [text and _nanoseconds(text) for text in texts]
        return pa.array(numbers, pa.int64()).cast(field.type)
    moments = pa.array(values, field.type)
    ends = pc.min_max(moments.view(pa.int64()))
    first, last = ends["min"].as_py() or 0, ends["max"].as_py() or 0
    if not _endless(field) and not YEARS[0] <= first <= last <= YEARS[1]:
        raise ValueError("an offset moves a time out of the years 1 to 9999")
    return moments


def _dates(texts: pa.Array, field: pa.Field) -> pa.Array | None:
    starts, sizes, letters = _bounds(texts)
    if not np.all(sizes == _DATE) or not _has_dashes(letters, starts):
        return None
    try:
        return texts.cast(field.type)
    except pa.ArrowInvalid:  # the 30th of February
        return None


def _date(texts: Texts, field: pa.Field) -> pa.Array:
    return pa.array(msgspec.convert(texts, list[value_type(field) | None]), field.type)  # type: ignore[misc]


def _times_of_day(texts: pa.Array, field: pa.Field) -> pa.Array | None:
    starts, sizes, letters = _bounds(texts)
    if not np.all((sizes >= _TIME[0]) & (sizes <= _TIME[1])):
        return None
    if not np.all((letters[starts + 2] == _COLON) & (letters[starts + 5] == _COLON)):
        return None
    first_day = pc.binary_join_element_wise("1970-01-01", texts, "T")
    try:
        return first_day.cast(pa.timestamp("us")).view(pa.int64()).view(field.type)
    except pa.ArrowInvalid:  # 25 o'clock
        return None


def _time_of_day(texts: Texts, field: pa.Field) -> pa.Array:
    """Rounded as timestamps are, so that the last half of a microsecond ends the day."""
    micros = [text if text is None else day_micros(text) for text in texts]
    if DAY in micros and not Note.INFINITE.marks(field):
        raise RejectedRecord("decode", "24:00:00 cannot be stored, nor what is rounded to it")
    return pa.array(micros, pa.int64()).view(field.type)


def _endless(field: pa.Field) -> Mapping[str, int]:
    if pa.types.is_time(field.type) or not Note.INFINITE.marks(field):
        return {}
    limits = np.iinfo(np.int32 if pa.types.is_date(field.type) else np.int64)
    return {"infinity": int(limits.max), "-infinity": int(limits.min)}


def _without_endless(texts: pa.Array, endless: Mapping[str, int]) -> pa.Array:
    if not endless:
        return texts
    return pc.if_else(pc.is_in(pc.utf8_lower(texts), pa.array([*endless])), None, texts)


def _with_endless(column: pa.Array, texts: pa.Array, endless: Mapping[str, int]) -> pa.Array:
    whole = pa.int32() if pa.types.is_date(column.type) else pa.int64()
    numbers, words = column.view(whole), pc.utf8_lower(texts)
    for word, number in endless.items():
        numbers = pc.if_else(pc.equal(words, word), pa.scalar(number, whole), numbers)
    return numbers.view(column.type)


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
    starts, sizes, letters = _bounds(texts)
    if sizes.min(initial=_SHORTEST) < _SHORTEST:
        return False
    if zoned:
        ends = starts + sizes
        sign, colon = letters[ends - 6], letters[ends - 3] == _COLON
        offset = colon & ((sign == _PLUS) | (sign == _MINUS))
        sizes = sizes - np.where(letters[ends - 1] == _ZULU, 1, np.where(offset, 6, 99))
    year = letters[starts]
    return bool(
        np.all((sizes >= _SHORTEST) & (sizes <= longest) & (year >= _ONE) & (year <= _EIGHT))
        and np.all((letters[starts + 10] == _T) & (letters[starts + 16] == _COLON))
    )


def _bounds(texts: pa.Array) -> tuple[Ints, Ints, npt.NDArray[np.uint8]]:
    texts = texts.drop_null() if texts.null_count else texts
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return bounds[:-1], np.diff(bounds), np.frombuffer(data, np.uint8)


def _has_dashes(letters: npt.NDArray[np.uint8], starts: Ints) -> bool:
    year, dash = letters[starts], (letters[starts + 4] == _MINUS) & (letters[starts + 7] == _MINUS)
    return bool(np.all(dash & (year >= _ONE) & (year <= _EIGHT)))
