"""States and mirrored totals of flows in Dagster, for the status of custom resources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from dataflow_assets.assets import graph, switches
from dataflow_assets.assets.drive_states import DriveState, states_in
from dataflow_assets.assets.mirrored_checkpoints import mirrored_together
from dataflow_assets.assets.runs import job_name
from dataflow_assets.flow import Flow

_LATEST = 25  # runs of a flow, of which the newest of each kind are looked for
_SCHEDULE = "dagster/schedule_name"


@dataclass(frozen=True)
class ScheduledRuns:
    """The latest runs of a flow with a schedule."""

    current: str = ""
    """The id of the one that is active."""
    at: datetime | None = None
    """When the schedule started one last."""
    succeeded: datetime | None = None
    failed: datetime | None = None


@dataclass(frozen=True)
class Standing:
    """State and totals of a flow; nothing is known of one that has never run."""

    state: DriveState | None = None
    """None: it is switched on, and nobody drives it now."""
    rows: int | None = None
    """Rows in all of its tables together."""
    rejected: int | None = None
    committed_at: datetime | None = None
    runs: ScheduledRuns = ScheduledRuns()


def standings(flows: Sequence[Flow]) -> Mapping[str, Standing]:
    """Returns how flows stand by their ids, as the Dagster of DAGSTER_HOME knows it.

    Called by `dataflow k8s watch`, every few seconds. Raises what Dagster raises where its storage
    cannot be read.
    """
    nodes = graph.build(flows)
    with dg.DagsterInstance.get() as instance:
        states = states_in(instance, flows, switches.off(instance, flows))
        mirrors = mirrored_together(instance, [node.key for node in nodes.nodes])
        runs = {flow.id: _scheduled_runs(instance, flow) for flow in flows if flow.schedule}
    checkpoints = {
        flow.id: [mirrors[node.key].checkpoint for node in nodes.of(flow)] for flow in flows
    }
    standing = {flow.id: _standing(states.get(flow.id), checkpoints[flow.id]) for flow in flows}
    return standing | {name: replace(standing[name], runs=each) for name, each in runs.items()}


def _scheduled_runs(instance: dg.DagsterInstance, flow: Flow) -> ScheduledRuns:
    records = instance.get_run_records(dg.RunsFilter(job_name=job_name(flow)), limit=_LATEST)
    active = [each.dagster_run.run_id for each in records if not each.dagster_run.is_finished]
    started = [each.create_timestamp for each in records if _SCHEDULE in each.dagster_run.tags]
    ends = {
        each.dagster_run.status: datetime.fromtimestamp(each.end_time, UTC)
        for each in reversed(records)  # the newest of each status comes last
        if each.end_time
    }
    success, failure = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE
    at = max(started, default=None)
    return ScheduledRuns(next(iter(active), ""), at, ends.get(success), ends.get(failure))


def _standing(state: DriveState | None, mirrored: Sequence[Mapping[str, Any] | None]) -> Standing:
    known = [one for one in mirrored if one]
    if not known:
        return Standing(state)
    totals = [one.get("totals") or {} for one in known]
    committed = [datetime.fromisoformat(at) for one in known if (at := one.get("committed_at"))]
    return Standing(
        state,
        sum(one.get("rows", 0) for one in totals),
        sum(one.get("rejected", 0) for one in totals),
        max(committed, default=None),
    )
