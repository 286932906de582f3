"""What the pages about Dagster show is what Dagster takes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
import yaml

import definitions
from dataflow_assets.assets import FlowConfig, user
from dataflow_assets.location.jobs.ingest import LaneConfig
from dataflow_assets.location.jobs.tables import TablesConfig
from jobs.retention import RetentionConfig
from tests import ROOT
from tests.dagster.location.test_definitions import to_iceberg, to_postgresql

LAUNCHPAD = (ROOT / "docs/launchpad.md").read_text(encoding="utf-8")
ASSETS = (ROOT / "docs/user-assets.md").read_text(encoding="utf-8")
SECTIONS = dict(
    re.findall(r"^## `([\w<>]+)`.*?\n(.*?)(?=^## |\Z)", LAUNCHPAD, re.MULTILINE | re.DOTALL)
)
JOBS = {"<flow>_job": "orders_job"}


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
    folder = tmp_path_factory.mktemp("flows")
    kept = to_postgresql("orders", "orders", "public.orders") + "  onRejected: table\n"
    (folder / "orders.yaml").write_text(kept)
    (folder / "history.yaml").write_text(to_iceberg("history", "orders", "orders"))
    return definitions.build([folder])


@pytest.mark.parametrize("job", SECTIONS)
def test_the_configuration_that_is_shown_is_taken(job: str, location: dg.Definitions) -> None:
    config = yaml.safe_load(SECTIONS[job].partition("```yaml\n")[2].partition("```")[0])
    found = location.resolve_job_def(JOBS.get(job, job))
    assert dg.validate_run_config(found, config)


@pytest.mark.parametrize(
    ("job", "model"),
    [
        ("<flow>_job", FlowConfig),
        ("ingest", LaneConfig),
        ("iceberg_maintenance", TablesConfig),
        ("retention", RetentionConfig),
    ],
)
def test_every_field_of_a_launchpad_is_in_its_table(job: str, model: type[dg.Config]) -> None:
    listed = re.findall(r"^\| `(\w+)` \|", SECTIONS[job], re.MULTILINE)
    assert sorted(listed) == sorted(model.model_fields)


def test_every_maintenance_job_that_a_page_names_is_one_of_the_launchpad() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    texts = [page.read_text(encoding="utf-8") for page in pages]
    named = {name for text in texts for name in re.findall(r"`(\w+_maintenance)`", text)}
    assert named
    assert named <= SECTIONS.keys()


def test_definitions_beside_flows_load_as_the_page_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster refuses a module in which two Definitions have a name."""

    @dg.job
    def nightly() -> None:
        """Does nothing."""

    page = (ROOT / "docs" / "dagster-project.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```python\n([^`]*beside=mine[^`]*)```", page)
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "orders.yaml").write_text(to_postgresql("orders", "orders", "orders"))
    monkeypatch.setitem(sys.modules, "jobs.nightly", SimpleNamespace(nightly=nightly))
    monkeypatch.chdir(tmp_path)
    module: dict[str, Any] = {}
    exec(text, module)  # noqa: S102 - what the page shows
    assert not [name for name, value in module.items() if isinstance(value, dg.Definitions)]
    defined = module["defs"]()
    assert {"nightly", "ingest"} <= {one.name for one in defined.resolve_all_job_defs()}


def test_the_assets_that_are_shown_load_beside_flows(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(to_postgresql("orders", "orders", "public.orders"))
    (tmp_path / "history.yaml").write_text(to_iceberg("history", "orders", "orders"))
    whole, days = [
        block
        for block in re.findall(r"```python\n(.*?)```", ASSETS, re.DOTALL)
        if "import" in block
    ]
    (tmp_path / "revenue.py").write_text(whole)
    (tmp_path / "days.py").write_text(days)
    assert len(user.files([tmp_path])) == 2
    keys = {s.key.to_user_string() for s in definitions.build([tmp_path]).resolve_all_asset_specs()}
    assert {"postgresql/shop/public/daily_revenue", "postgresql/shop/public/days"} <= keys
    assert not [key for key in keys if key.startswith("broken/")]
