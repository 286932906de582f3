"""The reference of manifests, generated from the models: `python -m dataflow_assets.reference`.

`--write` puts its pages into docs/, else they go to standard output. A test holds the
files against the models, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from dataflow_assets.languages.language import languages
from dataflow_assets.metrics import alerts, dashboard
from dataflow_assets.reference import connectors, json_schema, metrics, steps, types
from dataflow_assets.registry import systems

FOLDER = Path(__file__).parent.parent.parent / "docs"
PAGES: Mapping[str, Callable[[], str]] = {
    **{f"reference/{one.name}.md": one.reference for one in languages().values()},
    "reference/steps.md": steps.render,
    "reference/metrics.md": metrics.render,
    "monitoring/alerts.yaml": alerts.render,
    "monitoring/dashboard.json": dashboard.render,
    "types.md": types.render,
    json_schema.NAME: json_schema.render,
    **{f"connectors/{name}.md": partial(connectors.render, name) for name in systems()},
}
