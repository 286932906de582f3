"""Tables of keys with their verdicts: what checking and the reference of a language go by.

| verdict | meaning |
|---|---|
| used | does what it says |
| note | accepted; `dataflow check` notes what happens instead |
| ignored | known, and without effect here |
| refused | a finding says why |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Key:
    """One key, or with `*` at its end all that begin so."""

    name: str
    verdict: Literal["used", "note", "ignored", "refused"]
    says: str
    default: str = "-"
    """`required`, or the text that counts where the key is missing."""

    def matches(self, key: str) -> bool:
        if self.name.endswith("*"):
            return key.startswith(self.name[:-1])
        return key == self.name


_PLACEHOLDER = re.compile(r"\?{2,}|<[\w .-]+>")


def entry(key: str, *tables: Sequence[Key]) -> Key | None:
    """Returns what the tables say about a key; a plain entry wins over one with `*`."""
    matching = [one for table in tables for one in table if one.matches(key)]
    plain = (one for one in matching if not one.name.endswith("*"))
    return next(plain, matching[0] if matching else None)


def names(*tables: Sequence[Key]) -> Iterator[str]:
    """The keys that may be meant by another one."""
    return (one.name for table in tables for one in table if not one.name.endswith("*"))


def is_placeholder(text: str) -> bool:
    """Returns whether something must still be written: `???`, or `<a word>`, as in examples."""
    return _PLACEHOLDER.fullmatch(text.strip()) is not None


def placeholder(text: str) -> str:
    """Describes a placeholder by its form; empty for any other text, which may be secret."""
    form = "<...>" if text.lstrip().startswith("<") else "???"
    return f"is a placeholder ({form})" if is_placeholder(text) else ""
