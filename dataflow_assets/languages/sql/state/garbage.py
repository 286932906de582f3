"""Files that no state needs any more, and those that a crash has left."""

from __future__ import annotations

import time
from collections.abc import Mapping

from dataflow_assets import failpoints
from dataflow_assets.languages.sql.state.files import StateFiles
from dataflow_assets.languages.sql.state.manifest import MANIFEST, Manifest, Position

DAY = 24 * 3600 * 10**9


def collect(files: StateFiles, position: Position, manifests: Mapping[str, Manifest]) -> None:
    """Deletes what none of the known states names, of their spans and of older ones.

    A driver that was taken over without knowing it does no harm: the files of a later state are
    those of a state that it knows, or lie in folders of later spans, or of a generation that it
    does not know. Nor does another deployment whose flow has the same name and location: of a
    generation that is not known nothing is deleted, unless it has no state since a day.

    Args:
        files: of the view.
        position: of a state that is committed.
        manifests: by their names that state, the one before, and what is needed besides.
    """
    needed = {*manifests}.union(*(one.files for one in manifests.values()))
    limit, times = f"{position.number:012}-~", files.times()
    past = {*position.past, *_abandoned_spans(times)}
    for name in times:
        generation, _, rest = name.partition("/")
        own = generation == position.generation and rest < limit
        if (own or generation in past) and name not in needed:
            files.delete(name)
            failpoints.reach("view.deleted")


def _abandoned_spans(times: Mapping[str, int]) -> set[str]:
    """The generations whose first micro-batch died: they never had a state."""
    before = time.time_ns() - DAY
    alive = (name for name, at in times.items() if at > before or name.endswith(f"/{MANIFEST}"))
    return {_generation(name) for name in times} - {_generation(name) for name in alive}


def _generation(name: str) -> str:
    return name.partition("/")[0]
