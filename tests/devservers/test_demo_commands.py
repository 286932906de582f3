"""What a demo prints for a person to type works as it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataflow_assets.manifests.load import load
from devservers.demo.orders import FILES, OrdersDemo
from tests import ROOT


def test_how_far_the_flows_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of a query has a place only below an absolute path."""
    monkeypatch.chdir(ROOT)
    command = OrdersDemo(ROOT / ".data/demo", 0, print).status_command()
    variable, home, rest = command.split(" ", 2)
    name, _, folder = variable.partition("=")
    assert (name, rest) == (FILES, "dataflow status examples/demo")
    assert home == f"DAGSTER_HOME={ROOT}/.data/demo/dagster"
    monkeypatch.setenv(name, folder)
    assert load(Path("examples/demo")).findings == ()


def test_the_readme_has_the_same_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    home = "DAGSTER_HOME=$PWD/.data/demo/dagster"
    assert f"`{FILES}=$PWD/.data/demo {home} .venv/bin/dataflow status examples/demo`" in text
