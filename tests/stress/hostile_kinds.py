"""All kinds of files that nobody should write, and how often each is drawn."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from tests.stress import hostile_languages, hostile_manifests
from tests.stress.hostile_manifests import Text

KINDS: Mapping[str, Callable[[random.Random], Text]] = {
    "values": hostile_manifests.values,
    "keys": hostile_manifests.keys,
    "YAML": hostile_manifests.soup,
    "cut": hostile_manifests.cuts,
    "bombs": hostile_manifests.bombs,
    "names": hostile_manifests.names,
    "secret references": hostile_manifests.references,
    "Flink's SQL": hostile_languages.flink,
    "pipelines": hostile_languages.pipelines,
    "properties": hostile_languages.properties,
    "Tableflow": hostile_languages.tableflow,
}
WEIGHTS = {"bombs": 0.06}
"""A bomb costs as much as fifty others."""


def draw(rng: random.Random) -> tuple[str, Text]:
    """The next file, and its kind."""
    weights = [WEIGHTS.get(kind, 1.0) for kind in KINDS]
    (kind,) = rng.choices(tuple(KINDS), weights)
    return kind, KINDS[kind](rng)
