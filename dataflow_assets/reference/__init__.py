"""The reference of manifests, generated from the models: `python -m dataflow_assets.reference`.

`--write` puts its pages into docs/, else they go to standard output. A test holds the
files against the models, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from dataflow_assets.reference import (
    connect,
    connectors,
    json_schema,
    justone,
    manifests,
    pipelines,
    sql,
    steps,
    tableflow,
    types,
)

FOLDER = Path(__file__).parent.parent.parent / "docs"
PAGES: Mapping[str, Callable[[], str]] = {
    "reference/connect.md": connect.render,
    "reference/dataflow.md": manifests.render,
    "reference/justone.md": justone.render,
    "reference/pipelines.md": pipelines.render,
    "reference/sql.md": sql.render,
    "reference/steps.md": steps.render,
    "reference/tableflow.md": tableflow.render,
    "types.md": types.render,
    json_schema.NAME: json_schema.render,
    **{f"connectors/{name}.md": partial(connectors.render, name) for name in connectors.systems()},
}
