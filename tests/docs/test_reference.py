"""The generated pages are those of the code as it is."""

from __future__ import annotations

import pytest

from dataflow_assets import registry
from dataflow_assets.reference import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_up_to_date(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run make docs"


def test_every_connector_and_step_is_in_it() -> None:
    for role, found in (("source", registry.sources()), ("sink", registry.sinks())):
        for name in found:
            if not name.startswith("memory-"):
                assert f"## The {role}\n" in PAGES[f"connectors/{name}.md"]()
    text = PAGES["reference/steps.md"]()
    for name, step in registry.steps().items():
        _, _, section = text.partition(f"\n### `{name}`\n")
        assert step.examples[-1].about in section.partition("\n### ")[0]


@pytest.mark.parametrize("role", ["source", "sink"])
def test_every_connector_says_what_it_guarantees(role: str) -> None:
    for name, cls in (registry.sources() if role == "source" else registry.sinks()).items():
        if not name.startswith("memory-"):
            assert f"**Guarantee.** {cls.guarantee}\n" in PAGES[f"connectors/{name}.md"]()
            assert cls.guarantee.endswith(".")


def test_a_secret_ref_stands_beside_the_field_that_it_fills() -> None:
    page = PAGES["connectors/postgresql.md"]()
    assert "| `connectionString` | `connectionStringSecretRef` | text, secret |" in page
    assert "\n| `connectionStringSecretRef`" not in page


def test_additions_are_marked_and_nested_blocks_listed() -> None:
    page = PAGES["reference/steps.md"]()
    assert "### `hash`\n\n*Addition.* Hashes" in page
    assert "| `nullable` | true or false | `false` | *Addition.*" in page
    assert "#### `routes.sink`" in page
    assert '| `fieldName` | path | `"created_at"` |' in page
