"""Where a record is in its source, and how that is written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

_LONGEST = 200  # characters of an id, which has to fit into the index of a table
_KEPT = 80


@dataclass(frozen=True)
class Place:
    """Names one record of a source of parts: the same in whatever part and run it is read.

    `values` are those of the column PLACE, as text. `row` tells apart rows that have the same
    values: a digest of the row, and behind a dot the number of the row among equal ones.
    """

    values: Mapping[str, str]
    row: str = ""

    @property
    def key(self) -> str:
        """For the id of a rejected record.

        Returns:
            Text of at most some 150 to 250 characters, without `/`, control characters or letters
            beyond ASCII. Two places have the same key only if they are equal.
        """
        text = ",".join(f"{_quote(name)}={_quote(value)}" for name, value in self.values.items())
        if len(text) > _LONGEST:
            text = f"{digest(text.encode())}...{text[-_KEPT:]}"
        return f"{text}*{self.row}" if self.row else text

    def __str__(self) -> str:
        """For people."""
        return ", ".join(f"{name} {value}" for name, value in self.values.items()) or (
            f"row {self.row}"
        )


def digest(data: bytes) -> str:
    """A short stand-in for a text or a row.

    Called inside tasks, for rejected records only.

    Args:
        data: the text, or the row as a JSON object.

    Returns:
        32 hexadecimal digits.
    """
    return hashlib.sha256(data).hexdigest()[:32]


def _quote(text: str) -> str:
    return quote(text, " :@+", errors="backslashreplace")
