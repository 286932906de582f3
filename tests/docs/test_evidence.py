"""The tests that docs/evidence/findings.md names are there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests import ROOT

_NAMED = re.compile(r"`(?P<file>tests/[^`:]+)?(?:::(?P<test>\w+))?`")


def _tests() -> Iterator[tuple[str, str]]:
    file = ""
    for found in _NAMED.finditer((ROOT / "docs/evidence/findings.md").read_text()):
        file = found["file"] or file
        yield file, found["test"] or ""


def test_each_test_is_there() -> None:
    missing = [
        (file, test)
        for file, test in _tests()
        if not (ROOT / file).is_file() or f"def {test}" not in (ROOT / file).read_text()
    ]
    assert missing == []


def test_the_page_names_some_for_each_row() -> None:
    rows = (ROOT / "docs/evidence/findings.md").read_text().splitlines()
    cells = [row.rsplit("|", 2)[1] for row in rows if row.startswith("| ") and "Test |" not in row]
    assert len(cells) >= 29
    assert [cell for cell in cells if "`tests/" not in cell] == []
