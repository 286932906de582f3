"""Files that no state needs any more, and those that a crash has left."""

from __future__ import annotations

from collections.abc import Mapping

from dataflow_assets import failpoints
from dataflow_assets.views.files import StateFiles
from dataflow_assets.views.manifest import Manifest, Position


def collect(files: StateFiles, position: Position, known: Mapping[str, Manifest]) -> None:
    """Deletes what none of the known states names, of their spans and of older ones.

    A driver that was taken over without knowing it does no harm: the files of a later state are
    those of a state that it knows, or lie in folders of later spans.

    Args:
        files: of the view.
        position: of a state that is committed.
        known: by their names that state, the one before, and what is needed besides.
    """
    needed = {*known}.union(*(one.files for one in known.values()))
    limit = f"{position.generation}/{position.number:012}-~"
    for name in files.names():
        if name < limit and name not in needed:
            files.delete(name)
            failpoints.reach("view.deleted")
