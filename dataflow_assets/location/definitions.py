"""The only place that assembles: manifests and users' Python files -> Dagster's definitions.

Loading reads files and nothing else: no network, no Spark, no secrets.
"""

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import dagster as dg

from dataflow_assets.assets import assets, broken_files, graph, user
from dataflow_assets.assets.graph import Graph
from dataflow_assets.errors import Finding
from dataflow_assets.location.jobs.failures import failure_job
from dataflow_assets.location.jobs.flows import flow_job
from dataflow_assets.location.jobs.ingest import ingest_job
from dataflow_assets.location.jobs.replay import replay_jobs
from dataflow_assets.location.jobs.tables import table_jobs
from dataflow_assets.location.resources.io_managers import io_managers
from dataflow_assets.location.resources.spark import SparkResource
from dataflow_assets.location.schedules.flows import flow_schedule
from dataflow_assets.location.sensors.failures import failure_sensors
from dataflow_assets.location.sensors.flows import flow_sensor
from dataflow_assets.location.sensors.ingest import ingest_sensor
from dataflow_assets.location.sensors.lag import lag_sensor
from dataflow_assets.location.sensors.reload import reload_sensor
from dataflow_assets.manifests.load import load
from dataflow_assets.manifests.watched import Watched, fingerprint

log = logging.getLogger("dataflow")


def build(paths: Sequence[Path], beside: dg.Definitions | None = None) -> dg.Definitions:
    """Everything in these folders, merged with what is `beside` them.

    A manifest or Python file that cannot be used, by itself or together with `beside`, is an asset
    with a failing check, and hinders no other. Called once in each process that loads the location.

    Raises:
        DagsterError: as Dagster does where manifests and `beside` declare the same name.
    """
    missing = [path for path in paths if not path.exists()]
    for path in missing:
        log.warning("folder %s does not exist: no flow is loaded from it", path.absolute())
    others = beside or dg.Definitions()
    stamp = fingerprint(paths)
    loaded = load([path for path in paths if path not in missing])
    flows = graph.build(loaded.flows)
    users, findings = _users(paths, flows, others)
    findings = [*loaded.findings, *findings]
    files = reload_sensor(paths, stamp, findings)
    return dg.Definitions.merge(_base(flows, findings, paths, [files]), others, *users)


def _base(
    flows: Graph,
    findings: Sequence[Finding],
    paths: Sequence[Path],
    more: Iterable[dg.SensorDefinition] = (),
) -> dg.Definitions:
    """Flows, what is broken, and what they all share."""
    jobs = {flow.id: flow_job(flow, flows.of(flow)) for flow in flows.flows}
    switches = [
        flow_sensor(flow, jobs[flow.id], len(jobs)) for flow in flows.flows if not flow.schedule
    ]
    crons = [
        flow_schedule(flow, flow.schedule, jobs[flow.id]) for flow in flows.flows if flow.schedule
    ]
    following = {
        jobs[flow.id].name: (jobs[flow.id], job)
        for flow in flows.flows
        if (job := failure_job(flow)) is not None
    }
    spark = SparkResource(where=os.environ.get("DATAFLOW_SPARK") or "connect")
    resources = {"spark": spark, **io_managers(flows)}
    lanes = ingest_job(Watched(paths), resources["spark"])
    tidying, at_night = table_jobs(flows)
    wrecks = broken_files(findings)
    checks = [wreck for wreck in wrecks if isinstance(wreck, dg.AssetChecksDefinition)]
    return dg.Definitions(
        assets=[*assets(flows), *(wreck for wreck in wrecks if wreck not in checks)],
        asset_checks=checks,
        jobs=[
            *jobs.values(),
            *(job for _, job in following.values()),
            lanes,
            *replay_jobs(flows),
            *tidying,
        ],
        schedules=[*crons, *at_night],
        sensors=[
            *switches,
            ingest_sensor(flows, [lanes, *jobs.values()]),
            lag_sensor(flows),
            *failure_sensors(following),
            *more,
        ],
        resources=resources,
    )


def _users(
    paths: Sequence[Path], flows: Graph, beside: dg.Definitions
) -> tuple[list[dg.Definitions], list[Finding]]:
    """Users' files one by one, each held against what was accepted before it."""
    files = user.files(paths)
    others = [_base(flows, [], paths), beside] if files else []
    accepted: list[dg.Definitions] = []
    findings: list[Finding] = []
    for path in files:
        file = user.load(path)
        problem = file.finding or _misfit(file, [*others, *accepted])
        if problem:
            findings.append(problem)
        else:
            accepted.append(file.definitions)
    return accepted, findings


def _misfit(file: user.UserFile, others: Sequence[dg.Definitions]) -> Finding | None:
    try:
        dg.Definitions.validate_loadable(dg.Definitions.merge(*others, file.definitions))
    except Exception as error:  # noqa: BLE001 - Dagster's checks raise many kinds
        return user.finding(file.path, error)
    return None
