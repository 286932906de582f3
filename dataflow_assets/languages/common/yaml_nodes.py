"""YAML text -> nodes, within bounds: what becomes of a value is not the parser's to say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import Node
from ruamel.yaml.scanner import Scanner

from dataflow_assets.languages.common.yaml_bounds import MOST_DEPTH, TooDeep, Work

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


def compose(text: str, work: Work) -> Node | None:
    """The node of one document, None where it has none; raises YAMLError, TooDeep, TooMuch."""
    yaml = _Parser(work)
    yaml.composer.warn_double_anchors = False  # allowed by YAML; the later one counts
    node: Node | None = yaml.compose(text)
    return node


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
