"""The reference of manifests, generated from the models: `python -m dataflow_assets.reference`.

`--write` puts its pages into docs/reference, else they go to standard output. A test holds the
files against the models, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from dataflow_assets.reference import manifests, steps

FOLDER = Path(__file__).parent.parent.parent / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "dataflow.md": manifests.render,
    "steps.md": steps.render,
}
