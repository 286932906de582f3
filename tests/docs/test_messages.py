"""Messages that pages quote are messages that the program writes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import ROOT

QUOTING = ("troubleshooting.md", "schema-changes.md", "limits.md", "user-assets.md")
HEADINGS = ("You see", "Message")
"""Of the columns whose code spans are messages; `...` stands for what differs each time."""
_SPAN = re.compile(r"`([^`]+)`")
_AROUND = " ;,.()"


class _Texts(ast.NodeVisitor):
    """Every string of a module; what an f-string fills in is a NUL."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self.found.append("".join(_text(part) for part in node.values))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.found.append(node.value)


def _text(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "\0"


@cache
def written() -> str:
    """All strings of the program."""
    texts = _Texts()
    for folder in ("dataflow_assets", "sensors", "jobs", "resources"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            texts.visit(ast.parse(path.read_text(encoding="utf-8")))
    return "\n".join(texts.found)


def quoted(page: Path) -> Iterator[str]:
    """The pieces of each message between what differs, of all tables with such a column."""
    heads: list[str] = []
    for line in page.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            heads = []
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        heads = heads or cells
        for head, cell in zip(heads, cells, strict=True):
            if head in HEADINGS:
                pieces = [p.strip(_AROUND) for s in _SPAN.findall(cell) for p in s.split("...")]
                yield from (piece for piece in pieces if len(piece) > 3)


@pytest.mark.parametrize("name", QUOTING)
def test_each_message_is_one_of_the_program(name: str) -> None:
    pieces = list(quoted(ROOT / "docs" / name))
    assert len(pieces) >= 3
    assert [piece for piece in pieces if piece not in written()] == []


def test_a_message_of_nobody_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("| You see | Do |\n|---|---|\n| `nobody ever says ...` | `this` |\n")
    assert list(quoted(page)) == ["nobody ever says"]
    assert "nobody ever says" not in written()
