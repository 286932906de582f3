"""Composites as text: whether a date or time in one of them is a word for the server's clock.

Only the parts that are dates and times are looked at: a text may say `now`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.table.column import TIMES, TYPE

_WORDS = "now|today|tomorrow|yesterday"
_CLOCK = re.compile(f"(?<![a-z])({_WORDS})(?![a-z])", re.IGNORECASE)


def check_clock(values: pa.Array, field: pa.Field) -> None:
    """Raises Failure where a time in a value is a word for the clock.

    Called in tasks for a column with TIMES; few values have such a word anywhere.
    """
    ways = json.loads(field.metadata[TIMES])
    bare = pc.replace_substring_regex(values, r'[\\"]', "")
    for text in values.filter(pc.match_substring_regex(bare, f"(?i){_WORDS}").fill_null(False)):
        for part in (part for way in ways for part in _parts(text.as_py(), way)):
            if _CLOCK.search(part):
                declared = field.metadata[TYPE].decode()
                message = f'"{part}" in a value of type {declared} stands for the server\'s clock'
                raise PostgresqlFailure(message, "22007", column=field.name)


def _parts(text: str, way: Sequence[int]) -> Iterator[str]:
    if not way:
        yield text
        return
    is_array = way[0] == 0
    parts = list(_elements(text) if is_array else _attributes(text))
    for part in parts if is_array else parts[way[0] - 1 : way[0]]:
        yield from _parts(part, way[1:])


def _attributes(text: str) -> Iterator[str]:
    return _split(text.partition("(")[2], ",)")


def _elements(text: str) -> Iterator[str]:
    return _split(text.partition("{")[2], ",{}")


def _split(text: str, ends: str) -> Iterator[str]:
    """A quote is doubled, or behind a backslash, where it is part of a quoted text."""
    part, quoted, before, letters = "", False, "", iter(text)
    for letter in letters:
        if letter == "\\":
            part += next(letters, "")
        elif letter == '"':
            quoted = not quoted
            part += letter if quoted and before == letter else ""
        elif not quoted and letter in ends:
            yield part
            part = ""
        else:
            part += letter
        before = letter
