"""Secrets hidden in what a connector logs, and in its errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MASK = "***"
_BLANK = r"\s+"


class Mask:
    """Hides values also where blanks were changed, and where a text has one line of several.

    Errors come as one line, and a log comes line after line.
    """

    def __init__(self, values: Iterable[str]) -> None:
        parts = {part for value in values for part in _parts(value)}
        longest_first = sorted(parts, key=lambda words: sum(map(len, words)), reverse=True)
        self._patterns = [re.compile(_BLANK.join(map(re.escape, part))) for part in longest_first]

    def __call__(self, text: str) -> str:
        """The text without the values."""
        for pattern in self._patterns:
            text = pattern.sub(MASK, text)
        return text


def _parts(value: str) -> Iterator[tuple[str, ...]]:
    """The words of a value, and those of each of its lines: none of a line such as `}`."""
    if words := tuple(value.split()):
        yield words
    for line in value.splitlines():
        if any(one.isalnum() for one in line):
            yield tuple(line.split())
