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
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_OPPOSITES = (
    ("min minimum least", "max maximum most"),
    ("start starting begin first earliest from", "end ending stop last latest until to"),
    ("before", "after"),
    ("include included", "exclude excluded"),
    ("encode", "decode"),
    ("add insert append", "remove delete drop"),
    ("rename", "remove delete drop"),
    ("enable enabled", "disable disabled"),
    ("source", "sink target"),
    ("read reader", "write writer"),
    ("key", "value"),
    ("hard", "soft"),
)
"""Words that look alike in names and mean the opposite: who follows such advice loses data."""


def likely(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant.

    Called where a name was not found, for the end of a message: when manifests are loaded, and on
    the driver for topics, tables and columns.

    Args:
        name: what was not found; case, and what separates words, do not count.
        names: of what is there, the likelier ones first: of two that are equally alike the first
            one is returned.

    Returns:
        None where nothing is like it, or only names that mean the opposite.
    """
    if len(name) > _LONGEST:
        return None
    barred = _opposite(_words(name))
    possible = [one for one in names if not barred & _words(one)] if barred else names
    return next(iter(_closest(name, possible, 1, _ALIKE)), None)


def suggestion(name: str | None) -> str:
    """A likely name as the last clause of a message; empty without one."""
    return f"; did you mean {name}?" if name else ""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The likely name as the last clause of a message; empty where nothing is like it."""
    return suggestion(likely(name, names))


def did_you_mean_or(name: str, names: Iterable[str], otherwise: str) -> str:
    """Advice of its own: `did you mean x?`, or `otherwise` where nothing is like the name."""
    suggestion = likely(name, names)
    return f"did you mean {suggestion}?" if suggestion else otherwise


def closest(name: str, names: Iterable[str], count: int) -> list[str]:
    """So many names, those that are most like it first, be they alike or not."""
    return _closest(name[:_LONGEST], names, count, 0.0)


def plain(name: str) -> str:
    """A name as it is compared: without case, and without what separates words."""
    return _SEPARATORS.sub("", name.casefold())


def _closest(name: str, names: Iterable[str], count: int, alike: float) -> list[str]:
    by_plain: dict[str, str] = {}
    for one in list(names)[:_MOST]:
        if one != name:
            by_plain.setdefault(plain(one), one)
    return [by_plain[each] for each in get_close_matches(plain(name), by_plain, count, alike)]


def _words(name: str) -> set[str]:
    return {plain(name), *(one.lower() for one in _WORDS.findall(name))}


def _opposite(words: set[str]) -> set[str]:
    barred = set[str]()
    for pair in _OPPOSITES:
        one, other = (set(each.split()) for each in pair)
        barred |= (other if words & one else set()) | (one if words & other else set())
    return barred - words
