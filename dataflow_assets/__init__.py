"""Declarative flow manifests as Dagster assets on PySpark, exactly once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import dagster as dg

AnyPath = str | os.PathLike[str]


def definitions(
    folders: AnyPath | Iterable[AnyPath], *, beside: dg.Definitions | None = None
) -> dg.Definitions:
    """Definitions for Dagster that run the flows of some folders: assets, jobs, sensors, resources.

    Called by a Dagster project where it builds its own definitions, once in each process that loads
    the location. Reads files and nothing else: no network, no Spark, no secrets. A manifest that
    has a mistake is an asset with a failing check, and hinders no other flow.

    Args:
        folders: One folder or several, with manifests (`*.yaml`, recursively) and with Python files
            of assets on top of their tables. A relative one is below the working directory.
        beside: The project's own definitions, merged with those of the flows. Without it merge them
            yourself, by `dg.Definitions.merge`.

    Returns:
        The definitions of flows and `beside` together.

    Raises:
        DagsterError: as Dagster does where a flow and `beside` declare the same name.
    """
    from dataflow_assets.location.definitions import build

    several = [folders] if isinstance(folders, str | os.PathLike) else folders
    return build([Path(folder) for folder in several], beside)
