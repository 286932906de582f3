"""The site: every page is in it, and the builder finds no broken link."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests import ROOT


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "docs" / "build_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_site(site: ModuleType, tmp_path: Path) -> None:
    assert site.build(tmp_path) == 0
    built = {path.relative_to(tmp_path / "html") for path in (tmp_path / "html").rglob("*.html")}
    pages = {page.with_suffix(".html") for page in site.pages()}
    named = {page.with_name("index.html") if page.stem == "README" else page for page in pages}
    assert len(named) > 60
    assert named <= built
    assert (tmp_path / "html" / "docs" / "pictures" / "graph.png").exists()


def test_a_broken_link_ends_the_build(
    site: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a site of two pages, which is right without the link."""
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "limits.md").write_text("# Limits\n")
    (pages / "README.md").write_text("# Questions\n\n[limits](limits.md#limits)\n")
    monkeypatch.setattr(site, "stage", lambda _: None)  # what is there is built
    monkeypatch.setattr(site, "navigation", lambda: "  - README.md\n  - limits.md")
    assert site.build(tmp_path) == 0
    with (pages / "README.md").open("a") as page:
        page.write("\n[nothing](limits.md#there-is-no-such-heading)\n")
    assert site.build(tmp_path) != 0
