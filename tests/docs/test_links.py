"""Pages for people: links lead somewhere, and nobody has to read a wall of text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

LONGEST = 500
PAGES = [
    ROOT / "README.md",
    ROOT / "examples/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
_LINK = re.compile(r"\]\((?!https?:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def _prose(page: Path) -> str:
    return _CODE.sub("", page.read_text(encoding="utf-8"))


def _anchors(page: Path) -> Iterator[str]:
    """The anchors of a page's headings, as GitHub spells them."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()
        yield re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_relative_link_leads_to_a_file_and_its_heading(page: Path) -> None:
    for link in _LINK.finditer(_prose(page)):
        target = (page.parent / link["path"]).resolve() if link["path"] else page
        assert target.exists(), link[0]
        assert not link["anchor"] or link["anchor"] in _anchors(target), link[0]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_no_paragraph_outside_tables_is_long(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > LONGEST and not line.startswith("|")] == []


@pytest.mark.parametrize("folder", ["docs", "docs/guarantees", "docs/connectors"])
def test_every_page_is_in_the_index(folder: str) -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / folder).glob("*.md")}
    assert [page for page in pages - {"README.md"} if f"]({page}" not in index] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_page_begins_with_its_title_and_what_it_is_about(page: Path) -> None:
    # An indented paragraph there belongs to a list further below.
    assert re.match(r"# .+\n\n\S", page.read_text(encoding="utf-8"))
