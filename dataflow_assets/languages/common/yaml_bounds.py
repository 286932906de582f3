"""Limits the work for a file: a small text may ask for more than a manifest is worth."""

from __future__ import annotations

MOST_DOCUMENTS = 2_000
MOST_TOKENS = 41_000  # of a whole file: about a second; MOST_ENTRIES need four each
MOST_NODES = 50_000  # of a whole file: anchors repeated inside anchors grow beyond every memory
MOST_DEPTH = 100


class TooMuch(Exception):
    """The file asks for more work than a manifest can be worth; no more of it is read."""


class TooDeep(Exception):
    """One document is nested too deeply."""


class Work:
    """The cost of a file so far. All of its documents share the bounds: bombs come in rows."""

    def __init__(self) -> None:
        self.tokens = self.nodes = 0

    def document(self, number: int) -> None:
        """One more document; each costs a parser."""
        if number >= MOST_DOCUMENTS:
            raise TooMuch(f"the file has more than {MOST_DOCUMENTS} documents: split it")

    def token(self) -> None:
        self.tokens += 1
        if self.tokens > MOST_TOKENS:
            raise TooMuch("the file is too large for a manifest: split it")

    def node(self) -> None:
        """One more value, be it copied by an alias or looked at for a merge key."""
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise TooMuch(
                "grows without end: aliases or merge keys repeat what they are part of, or the "
                "file is too large for a manifest"
            )
