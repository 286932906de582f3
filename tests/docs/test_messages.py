"""Messages that pages quote are messages that the program writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import ROOT
from tests.docs.program import texts

QUOTING = ("troubleshooting.md", "schema-changes.md", "limits.md", "user-assets.md")
HEADINGS = ("You see", "Message")
"""Of the columns whose code spans are messages; `...` stands for what differs each time."""
_SPAN = re.compile(r"`([^`]+)`")
_AROUND = " ;,.()"


@cache
def written() -> str:
    """All strings of the program."""
    return "\n".join(one.text for one in texts())


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
