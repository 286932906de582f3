"""The Grafana dashboard has each metric once, and nothing that is not declared."""

from __future__ import annotations

import json
import re

from dataflow_assets.metrics import dashboard
from dataflow_assets.metrics.declarations import METRICS
from tests import ROOT


def test_each_metric_has_one_panel() -> None:
    shown = json.loads(dashboard.render())
    panels = [panel for panel in shown["panels"] if panel["type"] != "row"]
    names = [re.findall(r"dataflow_\w+", panel["targets"][0]["expr"])[0] for panel in panels]
    assert sorted(name.removesuffix("_bucket") for name in names) == sorted(m.name for m in METRICS)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in shown["panels"]}
    assert len(places) == len(shown["panels"])


def test_the_file_is_what_the_declarations_make() -> None:
    file = ROOT / "docs" / "monitoring" / "dashboard.json"
    assert file.read_text(encoding="utf-8") == dashboard.render()
