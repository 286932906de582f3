"""PostgreSQL's text of a value in Arrow: the same values as the table's own reader makes.

The stream has no casts: arrays come in PostgreSQL's own notation, and addresses without a mask.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.source.decode_copy import of_text, retyped
from dataflow_assets.connectors.postgresql.source.moments import moments
from dataflow_assets.connectors.postgresql.source.types import TypeOf
from dataflow_assets.errors import PermanentError

_TOKENS = {
    delimiter: re.compile(r'[{}]|"(?:[^"\\]|\\.)*"|(?:[^{}"\\' + delimiter + r"]|\\.)+", re.DOTALL)
    for delimiter in ",;"
}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


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
        return moments(texts, wanted, name)
    return texts.cast(wanted)


def _masked(texts: pa.Array) -> pa.Array:
    """As a cast to text writes it: a host has its mask."""
    bits = pc.if_else(pc.match_substring(texts, ":"), "/128", "/32")
    with_mask = pc.binary_join_element_wise(texts, bits, "")
    return pc.if_else(pc.match_substring(texts, "/"), texts, with_mask)


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
