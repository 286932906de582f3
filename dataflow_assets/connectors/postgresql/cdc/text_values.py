"""PostgreSQL's text of a value in Arrow: the same values as the table's own reader makes.

The stream has no casts: arrays come in PostgreSQL's own notation, and addresses without a mask.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.source.array_values import lists
from dataflow_assets.connectors.postgresql.source.fitted import Fitted
from dataflow_assets.connectors.postgresql.source.moments import beyond, moments
from dataflow_assets.connectors.postgresql.source.types import TypeOf

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def fit_column(texts: pa.Array, kind: TypeOf, name: str) -> Fitted:
    """A column's values.

    Args:
        texts: as PostgreSQL writes them with `DateStyle` ISO, in UTC.
        kind: the column's type.
        name: the column's.
    """
    if kind.element is not None:
        tokens = _tokens(kind.delimiter)
        values = [None if text is None else _parse(text, tokens) for text in texts.to_pylist()]
        return lists(values, kind, name, lambda leaves, inner: _element(leaves, kind, inner))
    fitted = _plain(texts, kind.base, kind.field_type)
    unfit = beyond(texts, fitted) if pa.types.is_timestamp(kind.field_type) else {}
    return Fitted(kind.field(name), fitted, unfit)


def _plain(texts: pa.Array, base: str, wanted: pa.DataType) -> pa.Array:
    if base == "inet":
        bits = pc.if_else(pc.match_substring(texts, ":"), "/128", "/32")
        with_mask = pc.binary_join_element_wise(texts, bits, "")
        return pc.if_else(pc.match_substring(texts, "/"), texts, with_mask)
    if pa.types.is_string(wanted):
        return texts
    if pa.types.is_boolean(wanted):
        return pc.equal(texts, "t")
    if pa.types.is_binary(wanted):
        values = [None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()]
        return pa.array(values, wanted)
    if pa.types.is_temporal(wanted):
        return moments(texts, wanted)
    return texts.cast(wanted)


def _element(texts: pa.Array, kind: TypeOf, inner: pa.DataType) -> pa.Array:
    if kind.element == "bpchar":  # a cast to text[] takes its blanks off, as of the first rows
        texts = pc.utf8_rtrim(texts, characters=" ")
    return _plain(texts, kind.element or "", inner)


@cache
def _tokens(delimiter: str) -> re.Pattern[str]:
    plain = rf"(?:[^{{}}\"\\{re.escape(delimiter)}]|\\.)+"
    return re.compile(rf'[{{}}]|"(?:[^"\\]|\\.)*"|{plain}', re.DOTALL)


def _parse(text: str, pattern: re.Pattern[str]) -> list[Any]:
    """An array of any depth, its elements as text."""
    tokens = iter(pattern.findall(text[text.index("{") :]))
    next(tokens)
    return _items(tokens)


def _items(tokens: Iterator[str]) -> list[Any]:
    items: list[Any] = []
    for part in tokens:
        if part == "}":
            break
        if part == "{":
            items.append(_items(tokens))
        elif part.startswith('"'):
            items.append(_ESCAPE.sub(r"\1", part[1:-1]))
        else:
            items.append(None if part == "NULL" else _ESCAPE.sub(r"\1", part))
    return items
