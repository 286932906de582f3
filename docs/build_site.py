"""The site of `make site`: every page of the repository, with search, in .data/site/html.

Pages link to each other, to examples and to settings by their paths in the repository: so they are
copied as they are, with all that they link to. A broken link or heading ends the build.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = ROOT / ".data" / "site"
PAGES = ("*.md", "docs/**/*.md", "bench/README.md", "flows/README.md", "examples/**/*.md")
LINK = re.compile(r"(?<=\]\()(?!https?:)([^)#\s]+)(#[^)\s]+)?(?=\))")
CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.DOTALL | re.MULTILINE)
SETTINGS = """\
site_name: dataflow-assets
docs_dir: pages
site_dir: html
use_directory_urls: false
theme:
  features: [navigation.indexes, search.highlight, content.code.copy]
markdown_extensions:
  - tables
  - attr_list
  - toc: {{ permalink: true }}
  - pymdownx.highlight
  - pymdownx.superfences
nav:
{nav}
"""


def pages() -> list[Path]:
    """All pages, by their paths in the repository."""
    found = {page for pattern in PAGES for page in ROOT.glob(pattern)}
    return sorted(page.relative_to(ROOT) for page in found)


def navigation() -> str:
    """The tables of docs/README.md: their headings, and each page once, where it is first named."""
    lines, seen = ["  - README.md", "  - All pages, by question: docs/README.md"], set[str]()
    for line in (ROOT / "docs" / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            lines.append(f"  - {line.removeprefix('## ')}:")
        for path, _ in LINK.findall(line):
            target = (ROOT / "docs" / path).resolve().relative_to(ROOT)
            if target.suffix == ".md" and str(target) not in seen | {"README.md"}:
                seen.add(str(target))
                lines.append(f"    - {target}")
    return "\n".join(lines)


def stage(folder: Path) -> None:
    """Copies the pages and what they link to; a link to a folder leads to the folder's page."""
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        parts = CODE.split(text)
        parts[::2] = [LINK.sub(lambda m, page=page: _target(page, m), part) for part in parts[::2]]
        _written(folder / page).write_text("".join(parts), encoding="utf-8")
        for path, _ in LINK.findall("".join(parts[::2])):
            linked = (ROOT / page.parent / path).resolve()
            if linked.is_file() and linked.suffix != ".md":
                shutil.copy(linked, _written(folder / linked.relative_to(ROOT)))


def _target(page: Path, link: re.Match[str]) -> str:
    path, anchor = link[1], link[2] or ""
    if (ROOT / page.parent / path).is_dir():
        index = f"{path.rstrip('/')}/README.md"
        return index if (ROOT / page.parent / index).exists() else _of_docs(page)
    return path + anchor


def _of_docs(page: Path) -> str:
    """The index of all pages, for a folder without a page of its own."""
    return "../" * (len(page.parts) - 1) + "docs/README.md"


def _written(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def build(folder: Path) -> int:
    """Builds it into an empty folder; the exit code is the builder's."""
    stage(folder / "pages")
    (folder / "mkdocs.yml").write_text(SETTINGS.format(nav=navigation()), encoding="utf-8")
    builder = Path(sys.executable).with_name("zensical")
    return subprocess.run([builder, "build", "--strict"], cwd=folder, check=False).returncode


if __name__ == "__main__":
    shutil.rmtree(SITE, ignore_errors=True)
    sys.exit(build(SITE))
