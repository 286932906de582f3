"""YAML text -> nodes, within bounds: a small text may ask for more work than a manifest is worth.

Only nodes are made: what becomes of a value is not the parser's to say, and nothing of the text
ends in a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import Node
from ruamel.yaml.scanner import Scanner

MOST_DOCUMENTS = 2_000
MOST_TOKENS = 36_000  # of a whole file: about a second
MOST_NODES = 50_000  # of a whole file: anchors repeated inside anchors grow beyond every memory
MOST_DEPTH = 100
_START = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_EMPTY = re.compile(r"(?:[ \t]*(?:#.*)?|%.*)", re.ASCII)


def chunks(text: str) -> Iterator[tuple[int, str]]:
    """Documents as text, each with the lines before it: a broken one does not hide the next."""
    starts = [match.start() for match in _START.finditer(text)]
    borders = [0, *starts, len(text)] if 0 not in starts else [*starts, len(text)]
    line = 0
    for start, end in pairwise(borders):
        chunk = text[start:end]
        body = chunk.removeprefix("---")
        if any(not _EMPTY.fullmatch(line) for line in body.splitlines()):
            yield line, chunk
        line += chunk.count("\n")


def composed(text: str, work: Work) -> Node | None:
    """The node of one document, None where it has none; raises YAMLError, TooDeep, TooMuch."""
    yaml = _Parser(work)
    yaml.composer.warn_double_anchors = False  # allowed by YAML; the later one counts
    node: Node | None = yaml.compose(text)
    return node


class TooMuch(Exception):
    """The file asks for more work than a manifest can be worth; no more of it is read."""


class TooDeep(Exception):
    """One document is nested too deeply."""


class Work:
    """What a file has cost so far. All of its documents share the bounds: bombs come in rows."""

    def __init__(self) -> None:
        self.tokens = self.nodes = 0

    def document(self, number: int) -> None:
        """One more document; each costs a parser."""
        if number >= MOST_DOCUMENTS:
            raise TooMuch(f"the file has more than {MOST_DOCUMENTS} documents: split it")

    def token(self) -> None:
        """One more sign of the text."""
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


class _Parser(YAML):
    """Reads YAML 1.2 without making values, and counts the work."""

    def __init__(self, work: Work) -> None:
        super().__init__(typ="safe", pure=True)
        self.Scanner = _Scanner
        self.work = work


class _Scanner(Scanner):
    """Counts what it reads, and stops at brackets that it would only notice when all are read."""

    def fetch_more_tokens(self) -> Any:
        self.loader.work.token()
        return super().fetch_more_tokens()

    def fetch_flow_collection_start(self, *arguments: Any, **options: Any) -> None:
        if len(self.flow_context) >= MOST_DEPTH:
            raise TooDeep
        super().fetch_flow_collection_start(*arguments, **options)
