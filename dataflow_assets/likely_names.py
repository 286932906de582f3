"""Which of the names that are there was probably meant by one that is not.

The one rule for whatever has names: keys, types, steps, functions, topics, tables, columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

_ALIKE = (
    0.65  # of 1, as difflib compares: `latest` is like `latest-offset`, `parcel` not like `part`
)
_MOST = 5_000  # names that are compared: more take longer than a person waits
_LONGEST = 100  # characters: to compare longer ones takes long, and nobody has misspelt them
_SEPARATORS = re.compile(r"[\s._-]+")


def likely(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant.

    Called where a name was not found, for the end of a message: when manifests are loaded, and on
    the driver for topics, tables and columns.

    Args:
        name: what was not found; case, and what separates words, do not count.
        names: of what is there, the likelier ones first: of two that are equally alike the first
            one is returned.

    Returns:
        None where nothing is like it.
    """
    found = _closest(name, names, 1, _ALIKE) if len(name) <= _LONGEST else []
    return found[0] if found else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The same as the last clause of a message; empty where nothing is like it."""
    found = likely(name, names)
    return f"; did you mean {found}?" if found else ""


def closest(name: str, names: Iterable[str], count: int) -> list[str]:
    """So many names, those that are most like it first, be they alike or not."""
    return _closest(name[:_LONGEST], names, count, 0.0)


def plain(name: str) -> str:
    """A name as it is compared: without case, and without what separates words."""
    return _SEPARATORS.sub("", name.casefold())


def _closest(name: str, names: Iterable[str], count: int, alike: float) -> list[str]:
    known: dict[str, str] = {}
    for one in list(names)[:_MOST]:
        if one != name:
            known.setdefault(plain(one), one)
    return [known[each] for each in get_close_matches(plain(name), known, count, alike)]
