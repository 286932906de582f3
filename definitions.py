"""This location: the flows of its folders, and what jobs/, resources/ and sensors/ add to them.

Folders: DATAFLOW_FLOWS (several are separated by `:`), else `flows`. A Dagster project of your own
needs one line instead: docs/dagster-project.md.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

import dataflow_assets
from jobs.retention import retention_job, retention_schedule
from resources import RESOURCES
from sensors import automation

log = logging.getLogger("dataflow")


def folders() -> list[Path]:
    """Where manifests and users' Python files are."""
    text = os.environ.get("DATAFLOW_FLOWS") or "flows"
    return [Path(part) for part in text.split(os.pathsep) if part]


def build(paths: Sequence[Path]) -> dg.Definitions:
    """The location of these folders."""
    own = dg.Definitions(
        jobs=[retention_job],
        schedules=[retention_schedule],
        sensors=automation(paths),
        resources=RESOURCES,
        executor=dg.in_process_executor,
    )
    return dataflow_assets.definitions(paths, beside=own)


def _warn_about_home() -> None:
    """Dagster starts without either, and does not say what that costs."""
    home, settings = os.environ.get("DAGSTER_HOME"), Path(__file__).with_name("dagster.yaml")
    if not home:
        log.warning(
            "DAGSTER_HOME is not set: history, switches and mirrored checkpoints are lost when "
            "Dagster ends (the tables and their own checkpoints are not). Set it to a folder"
        )
    elif settings.exists() and not Path(home, settings.name).exists():
        log.warning(
            "DAGSTER_HOME (%s) has no dagster.yaml, so Dagster's own settings apply: runs start up "
            "to 5 s later, and all history is kept. Copy %s into it",
            home,
            settings,
        )


_warn_about_home()
defs = build(folders())
