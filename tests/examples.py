"""How many examples of a property a run tries: `make test` a few, `make test-all` all of them."""

from __future__ import annotations

SHARE = 5  # of so many `make test` tries one
_all = False


def all_of_them() -> None:
    """Called before tests are imported, in each process of `make test-all`."""
    global _all  # noqa: PLW0603 - a process runs one or the other
    _all = True


def examples(most: int) -> int:
    """Of so many those of this run; asked where a test is declared."""
    return most if _all else most // SHARE
