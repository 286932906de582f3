"""Names of our own in statements that also name the columns of a table."""

from __future__ import annotations

from collections.abc import Iterable


def free_stem(taken: Iterable[str], stem: str) -> str:
    """The beginning of names that none of a table's columns has, whatever their letters' case.

    Called where a statement has aliases or columns of our own beside those of a table: a server
    would take the one for the other.

    Args:
        taken: the names of the table's columns.
        stem: the beginning to prefer.

    Returns:
        The stem, made longer until no name begins with it.
    """
    names = [name.casefold() for name in taken]
    while any(name.startswith(stem) for name in names):
        stem += "_"
    return stem
