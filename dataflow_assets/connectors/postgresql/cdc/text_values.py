"""PostgreSQL's text of a value in Arrow: the same values as the table's own reader makes.

The stream has no casts: arrays come in PostgreSQL's own notation, and addresses without a mask.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.source.decode_copy import of_text, retyped
from dataflow_assets.connectors.postgresql.source.types import TypeOf
from dataflow_assets.errors import PermanentError

_TOKENS = {
    delimiter: re.compile(r'[{}]|"(?:[^"\\]|\\.)*"|(?:[^{}"\\' + delimiter + r"]|\\.)+", re.DOTALL)
    for delimiter in ",;"
}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MIDNIGHT = 86_400_000_000
_FAR = 294_246  # the last year that microseconds since 1970 can tell
_INFINITE = ("infinity", "-infinity")


def arrow(texts: pa.Array, kind: TypeOf, name: str) -> pa.Array:
    """A column's values.

    Args:
        texts: as PostgreSQL writes them with `DateStyle` ISO, in UTC.
        kind: the column's type.
        name: the column's, for messages.

    Raises:
        PermanentError: a value that Arrow cannot hold.
    """
    if kind.element is not None:
        return _lists(texts, kind, name)
    return _plain(texts, kind.base, kind.reading.arrow, name)


def _plain(texts: pa.Array, base: str, wanted: pa.DataType, name: str) -> pa.Array:
    if base == "inet":
        return _masked(texts)
    if pa.types.is_string(wanted):
        return texts
    if pa.types.is_boolean(wanted):
        return pc.equal(texts, "t")
    if pa.types.is_binary(wanted):
        values = [None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()]
        return pa.array(values, wanted)
    if pa.types.is_temporal(wanted):
        return _moments(texts, wanted, name)
    return texts.cast(wanted)


def _masked(texts: pa.Array) -> pa.Array:
    """As a cast to text writes it: a host has its mask."""
    bits = pc.if_else(pc.match_substring(texts, ":"), "/128", "/32")
    with_mask = pc.binary_join_element_wise(texts, bits, "")
    return pc.if_else(pc.match_substring(texts, "/"), texts, with_mask)


def _moments(texts: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    """All at once where that can be: no infinity, no year before 1 or beyond 9999, no 24:00."""
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


def _lists(texts: pa.Array, kind: TypeOf, name: str) -> pa.Array:
    tokens = _TOKENS[";" if kind.element == "box" else ","]
    found = [None if text is None else _parsed(text, tokens) for text in texts.to_pylist()]
    depth = kind.dimensions
    if any(one is not None and not _is_deep(one, depth) for one in found):
        raise PermanentError(
            f"column {name} is declared as {kind.declared} but holds an array of other "
            "dimensions: declare all of them"
        )
    wanted = kind.field_type
    as_text = pa.array(found, of_text(wanted))
    return retyped(as_text, wanted, lambda values, inner: _element(values, kind, inner, name))


def _element(texts: pa.Array, kind: TypeOf, inner: pa.DataType, name: str) -> pa.Array:
    if kind.element == "bpchar":  # a cast to text[] takes its blanks off, as of the first rows
        texts = pc.utf8_rtrim(texts, characters=" ")
    return _plain(texts, kind.element or "", inner, name)


def _is_deep(value: Any, depth: int) -> bool:
    """Whether lists are nested as declared; an empty array has no dimensions at all."""
    if depth == 0:
        return not isinstance(value, list)
    return isinstance(value, list) and all(_is_deep(one, depth - 1) for one in value)


def _parsed(text: str, pattern: re.Pattern[str]) -> list[Any]:
    """An array of any depth, its elements as text."""
    tokens = iter(pattern.findall(text[text.index("{") :]))
    next(tokens)
    return _items(tokens)


def _items(tokens: Iterator[str]) -> list[Any]:
    found: list[Any] = []
    for part in tokens:
        if part == "}":
            break
        if part == "{":
            found.append(_items(tokens))
        elif part.startswith('"'):
            found.append(_ESCAPE.sub(r"\1", part[1:-1]))
        else:
            found.append(None if part == "NULL" else _ESCAPE.sub(r"\1", part))
    return found
