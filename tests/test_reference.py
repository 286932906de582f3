"""The generated pages are those of the code as it is."""

from __future__ import annotations

import pytest

from dataflow_assets import catalogue
from dataflow_assets.reference import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_up_to_date(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run python -m dataflow_assets.reference --write"


def test_every_connector_and_step_is_in_it() -> None:
    text = "".join(render() for render in PAGES.values())
    for cls in (*catalogue.sources().values(), *catalogue.sinks().values()):
        assert cls.type.startswith("memory") or f"of type `{cls.type}`" in text
    for name, step in catalogue.steps().items():
        _, _, section = text.partition(f"\n### `{name}`\n")
        assert step.examples[-1].about in section.partition("\n### ")[0]


def test_additions_are_marked_and_nested_blocks_listed() -> None:
    page = PAGES["steps.md"]()
    assert "### `hash`\n\n*Addition.* Hashes" in page
    assert "| `nullable` | true or false | `false` | used | *Addition.*" in page
    assert "#### `routes.sink`" in page
    assert '| `fieldName` | path | `"created_at"` |' in page
