"""Parse paths of JustOne's sink connector: `/@location/@latitude`, `/@acceleration/#0`.

The first character is the delimiter, whichever it is. Behind each delimiter is one item: `@key` is
a member of an object, `#index` an item of an array, which begins at 0. A delimiter alone, `/`, is
the whole message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Item = str | int
"""A key, or an index."""


@dataclass(frozen=True)
class ParsePath:
    """One path, read."""

    items: tuple[Item, ...]

    @classmethod
    def parse(cls, text: str) -> ParsePath:
        """The path that a text is. Raises ValueError, whose sentence says what is wrong."""
        if not text:
            raise ValueError("is empty: a path is a delimiter and then @key or #index, like /@id")
        if text[0].isspace() and text[1:2] not in ("@", "#"):
            raise ValueError(
                "begins with a space, which would be the delimiter, and @key or #index must follow "
                "it: remove the space behind the comma"
            )
        if text[0] in "@#":
            raise ValueError(f"begins with {text[0]}: the delimiter comes first, like /@id")
        return cls(tuple(_items(text)) if len(text) > 1 else ())


def _items(text: str) -> Iterator[Item]:
    for part in text[1:].split(text[0]):
        if part.startswith("@"):
            yield part[1:]
        elif part.startswith("#") and part[1:].isascii() and part[1:].isdigit():
            yield int(part[1:])
        else:
            raise ValueError(
                f"has an item that is neither @key nor #index (a whole number from 0) behind the "
                f"delimiter {text[0]}: write it like {text[0]}@id"
            )
