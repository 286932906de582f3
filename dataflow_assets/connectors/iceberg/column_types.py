"""The manifest's column types as Arrow types: `long`, `decimal(10,2)`, `struct<a: long>`.

Iceberg's own names, nested as Spark prints them, plus `json` for a string that holds JSON text and
` not null` behind any of them. Parsed without PyIceberg, so that checking a manifest stays quick.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "uuid": pa.uuid(),
    "binary": pa.binary(),
    "json": pa.json_(),
}
NAMES = (*sorted(_SIMPLE), "decimal(p,s)", "fixed(n)", "struct<a: type>", "list<type>", "map<k, v>")
_TOKEN = re.compile(r"\s*(not\s+null\b|[A-Za-z_][\w-]*|`[^`]+`|\d+|[<>(),:\[\]])\s*")


class _IcebergTokens:
    """The words of one type text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._left = self._split(text)

    def _split(self, text: str) -> list[str]:
        words: list[str] = []
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise ValueError(f"cannot read {text[place:]!r} in the type {text!r}")
            words.append(match[1])
            place = match.end()
        return words

    @property
    def next(self) -> str:
        return self._left[0] if self._left else ""

    def take(self, *wanted: str) -> str:
        if wanted and self.next not in wanted:
            token = self.next or "its end"
            raise ValueError(f"the type {self.text!r} has {token!r} where {wanted[0]!r} belongs")
        return self._left.pop(0) if self._left else ""

    def number(self) -> int:
        return int(self.take()) if self.next.isdigit() else int(self.take("a number"))


def parse_field(name: str, text: str) -> pa.Field:
    """The column that the text describes. Raises ValueError naming what is allowed."""
    tokens = _IcebergTokens(text)
    kind = _type(tokens)
    field = pa.field(name, kind, nullable=not _not_null(tokens))
    if tokens.next:
        raise ValueError(f"the type {text!r} goes on behind its end, at {tokens.next!r}")
    return field


def _type(tokens: _IcebergTokens) -> pa.DataType:
    word = tokens.take().lower()
    if word in _SIMPLE:
        return _SIMPLE[word]
    if word == "decimal":
        precision, scale = _numbers(tokens, 2)
        return pa.decimal128(precision, scale)
    if word == "fixed":
        return pa.binary(*_numbers(tokens, 1))
    if word in ("list", "struct", "map"):
        return _nested_type(word, tokens)
    raise ValueError(f"unknown type {word!r}; allowed: {', '.join(NAMES)}")


def _nested_type(word: str, tokens: _IcebergTokens) -> pa.DataType:
    tokens.take("<")
    if word == "list":
        kind = pa.list_(pa.field("element", _type(tokens)))
    elif word == "map":
        key = _type(tokens)
        tokens.take(",")
        kind = pa.map_(key, _type(tokens))
    else:
        kind = pa.struct(list(_members(tokens)))
    tokens.take(">")
    return kind


def _members(tokens: _IcebergTokens) -> Iterator[pa.Field]:
    while True:
        name = tokens.take().strip("`")
        tokens.take(":")
        kind = _type(tokens)
        yield pa.field(name, kind, nullable=not _not_null(tokens))
        if tokens.next != ",":
            return
        tokens.take(",")


def _not_null(tokens: _IcebergTokens) -> bool:
    return bool(tokens.next.startswith("not") and tokens.take())


def _numbers(tokens: _IcebergTokens, count: int) -> list[int]:
    numbers: list[int] = []
    for sign in ("(", ",")[:count]:
        tokens.take(sign, "[") if sign == "(" else tokens.take(sign)
        numbers.append(tokens.number())
    tokens.take(")", "]")
    return numbers
