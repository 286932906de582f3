"""Which of the names that are there was probably meant by one that is not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

_ALIKE = 0.75  # of 1, as difflib compares
_MOST = 5_000  # names that are compared: more take longer than a person waits


def likely(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant.

    Called by the driver once a topic, table or column was not found, for the end of a message.

    Args:
        name: what was not found; case, and what separates words, do not count.
        names: of what is there.

    Returns:
        None where nothing is like it.
    """
    known = {_plain(one): one for one in list(names)[:_MOST] if one != name}
    found = get_close_matches(_plain(name), known, n=1, cutoff=_ALIKE)
    return known[found[0]] if found else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The same as the last clause of a message; empty where nothing is like it."""
    found = likely(name, names)
    return f"; did you mean {found}?" if found else ""


def _plain(name: str) -> str:
    return re.sub(r"[._-]+", "-", name.casefold())
