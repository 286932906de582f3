"""The only place that assembles: manifests and users' Python files -> Dagster's definitions.

Folders: DATAFLOW_FLOWS (several are separated by `:`), else `flows`. Loading reads files and
nothing else: no network, no Spark, no secrets.
"""

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from dataflow_assets.assets import assets, broken, graph, user
from dataflow_assets.assets.graph import Graph
from dataflow_assets.errors import Finding
from dataflow_assets.manifests.load import load
from dataflow_assets.manifests.watched import Watched, fingerprint
from jobs.flows import flow_job
from jobs.ingest import ingest_job
from jobs.replay import replay_jobs
from jobs.retention import retention_job, retention_schedule
from jobs.tables import table_jobs
from resources.io_managers import DefaultIOManager, io_managers
from resources.spark import SparkResource
from sensors import default_status
from sensors.flows import flow_sensor
from sensors.ingest import ingest_sensor
from sensors.lag import lag_sensor
from sensors.reload import reload_sensor

AUTOMATION_SECONDS = 4  # 30 by default; served every 5 s

log = logging.getLogger("dataflow")


def folders() -> list[Path]:
    """Where manifests and users' Python files are."""
    text = os.environ.get("DATAFLOW_FLOWS") or "flows"
    return [Path(part) for part in text.split(os.pathsep) if part]


def build(paths: Sequence[Path]) -> dg.Definitions:
    """Everything in these folders; a file that cannot be used is an asset with a failing check."""
    stamp = fingerprint(paths)
    loaded = load([path for path in paths if path.exists()])
    flows = graph.build(loaded.flows)
    users, findings = _users(paths, flows)
    findings = [*loaded.findings, *findings]
    sensors = [reload_sensor(paths, stamp, findings)]
    # Dagster reads the state of every sensor for it, every five seconds.
    automation = [automation_sensor()] if users else []
    return dg.Definitions.merge(_base(flows, findings, paths, [*sensors, *automation]), *users)


def _base(
    flows: Graph,
    findings: Sequence[Finding],
    paths: Sequence[Path],
    more: Iterable[dg.SensorDefinition],
) -> dg.Definitions:
    """Flows, what is broken, and what they all share."""
    jobs = {flow.id: flow_job(flow, flows.of(flow)) for flow in flows.flows}
    switches = [flow_sensor(flow, jobs[flow.id], len(jobs)) for flow in flows.flows]
    resources = _resources(flows)
    lanes = ingest_job(Watched(paths), resources["spark"])
    tidying, at_night = table_jobs(flows)
    wrecks = broken(findings)
    checks = [wreck for wreck in wrecks if isinstance(wreck, dg.AssetChecksDefinition)]
    return dg.Definitions(
        assets=[*assets(flows), *(wreck for wreck in wrecks if wreck not in checks)],
        asset_checks=checks,
        jobs=[*jobs.values(), lanes, *replay_jobs(flows), retention_job, *tidying],
        schedules=[retention_schedule, *at_night],
        sensors=[
            *switches,
            ingest_sensor(flows, [lanes, *jobs.values()]),
            lag_sensor(flows),
            *more,
        ],
        resources=resources,
        executor=dg.in_process_executor,
    )


def _resources(flows: Graph) -> dict[str, Any]:
    return {
        "spark": SparkResource(where=os.environ.get("DATAFLOW_SPARK") or "connect"),
        "io_manager": DefaultIOManager(),
        **io_managers(flows),
    }


def automation_sensor() -> dg.AutomationConditionSensorDefinition:
    """Refreshes the assets that users build on flows, by the conditions they carry."""
    return dg.AutomationConditionSensorDefinition(
        "automation",
        target=dg.AssetSelection.all(),
        minimum_interval_seconds=AUTOMATION_SECONDS,
        default_status=default_status(),
    )


def _users(paths: Sequence[Path], flows: Graph) -> tuple[list[dg.Definitions], list[Finding]]:
    """Users' files one by one, each held against what was accepted before it."""
    accepted: list[dg.Definitions] = []
    findings: list[Finding] = []
    for path in user.files(paths):
        file = user.load(path)
        base = _base(flows, [], paths, [automation_sensor()])
        problem = file.finding or _misfit(file, [base, *accepted])
        if problem:
            findings.append(problem)
        else:
            accepted.append(file.definitions)
    return accepted, findings


def _misfit(file: user.UserFile, others: Sequence[dg.Definitions]) -> Finding | None:
    """What Dagster would refuse the whole location for: cycles, twice the same key, no resource."""
    try:
        dg.Definitions.validate_loadable(dg.Definitions.merge(*others, file.definitions))
    except Exception as error:  # noqa: BLE001 - Dagster's checks raise many kinds
        return user.finding(file.path, error)
    return None


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
