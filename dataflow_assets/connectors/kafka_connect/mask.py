"""Secrets hidden in what a connector logs, and in its errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

MASK = "***"
_BLANK = r"\s+"
_LEAST = 4  # characters: shorter ones are in every text, and masks would tell where


def is_long_enough(value: str) -> bool:
    """Returns whether a value that nobody has declared as a password is hidden."""
    return len(value.strip()) >= _LEAST


class Mask:
    """Hides values also where blanks were changed, and where a text has one line of several.

    Errors come as one line, and a log comes line after line. Values are hidden as they are, as
    parts of JSON, and as parts of a URL.
    """

    def __init__(self, values: Iterable[str]) -> None:
        parts = {part for value in values for part in _parts(value)}
        longest_first = sorted(parts, key=lambda words: sum(map(len, words)), reverse=True)
        self._patterns = [re.compile(_BLANK.join(map(re.escape, part))) for part in longest_first]

    def __call__(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.sub(MASK, text)
        return text


def _parts(value: str) -> Iterator[tuple[str, ...]]:
    """The words of a value, and those of each of its lines: none of a line such as `}`."""
    lines = (line for line in value.splitlines() if is_long_enough(line))
    for text in (value, value.strip(), *lines):
        for form in _forms(text):
            if words := tuple(form.split()):
                yield words


def _forms(text: str) -> Iterator[str]:
    yield text
    for ascii_only in (True, False):
        yield json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    for quoted in (quote(text), quote(text, safe=""), quote_plus(text)):
        yield quoted
        yield re.sub("%..", lambda found: found[0].lower(), quoted)
