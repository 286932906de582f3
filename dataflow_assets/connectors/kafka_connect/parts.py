"""The parts of a spool, as the names of their files say, and which of them may be read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

import msgspec

_NAME = re.compile(r"(\d{12})-(\d+)-(\d+)-(\d+)-([01])-([0-9a-f]{8})\.parquet")
EMPTIED = "0" * 8
"""The token of a part whose records were thrown away."""


class ConnectPart(msgspec.Struct, frozen=True, order=True):
    """A part, as its name says."""

    number: int
    task: int
    rows: int
    bytes: int
    open: bool
    """Behind it the connector cannot go on."""
    token: str
    """Of the process that has sealed it: a part that got lost is never taken for another one.
    Zeros: its records were thrown away."""

    @classmethod
    def parse(cls, name: str) -> ConnectPart | None:
        """Returns what the name of a file says; None for other files."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        number, task, rows, size, still_open = map(int, match.groups()[:5])
        return cls(number, task, rows, size, bool(still_open), match[6])

    @property
    def name(self) -> str:
        sizes = f"{self.task}-{self.rows}-{self.bytes}-{self.open:d}"
        return f"{self.number:012}-{sizes}-{self.token}.parquet"


def still_open(parts: Sequence[ConnectPart]) -> list[ConnectPart]:
    """Parts after which no resumable offset has been sealed."""
    goes_on = [part for part in parts if not part.open and part.token != EMPTIED]
    closed = {part.task: part.number for part in goes_on}
    return [part for part in parts if part.open and part.number > closed.get(part.task, 0)]


def without_gap(parts: Sequence[ConnectPart], first: int) -> list[ConnectPart]:
    """Returns those in front of the first number that is missing, from `first` on.

    A folder that is listed while parts come may show a part without an older one.
    """
    numbered = enumerate(parts, first)
    return [part for _, part in takewhile(lambda one: one[0] == one[1].number, numbered)]


def published_parts(parts: Sequence[ConnectPart]) -> list[ConnectPart]:
    """Returns those in front of the first that is still open."""
    waiting = still_open(parts)
    return [part for part in parts if not waiting or part.number < waiting[0].number]
