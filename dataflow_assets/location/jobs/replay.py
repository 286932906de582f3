"""Rejected records sent through their flow again: one job for all flows that keep theirs.

One job, not one per flow: the list of jobs has it under the name of what it does, its launchpad
offers the flows there are, and a location of fifty flows has no fifty jobs that are seldom needed.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import dagster as dg

from dataflow_assets.assets.failures import failing
from dataflow_assets.assets.graph import AssetNode, Graph
from dataflow_assets.assets.run_log import log_to_run
from dataflow_assets.assets.runs import FLOW
from dataflow_assets.assets.stopping import Interrupts
from dataflow_assets.contracts import Run, Totals
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.runs.replay import Replayed, keeps, moment, replay

NAME = "replay"
OP = "put_back"
_DESCRIPTION = (
    "Retries the rejected records of one flow: launch the job once their cause is fixed (the "
    "table, the steps, the manifest). The records are read from the flow's error sink, or from the "
    "table of rejected records beside its tables. Each record is stored at most once; a record "
    "that is rejected again waits for the next replay. The flow itself may run meanwhile."
)


def replay_jobs(graph: Graph) -> list[dg.JobDefinition]:
    """The job; none where no flow keeps what it rejects."""
    flows = {node.flow.id: node.flow for node in graph.nodes if keeps(node.flow)}
    return [_job(graph, flows)] if flows else []


def _config(names: Sequence[str]) -> dict[str, dg.Field]:
    # Dagster takes two enums of one name for the same: another location in this process has others.
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]
    values = [dg.EnumValue(name) for name in names]
    flow = dg.Enum(f"FlowThatKeepsRejectedRecords_{digest}", values)
    since = "Only what was rejected at this time or later: 2026-01-31T00:00:00Z."
    return {
        "flow": dg.Field(flow, description="namespace/name of the flow."),
        "since": dg.Field(str, is_required=False, description=since),
    }


def _job(graph: Graph, flows: dict[str, Flow]) -> dg.JobDefinition:
    @dg.op(
        name=OP,
        description=_DESCRIPTION,
        required_resource_keys={"spark"},
        config_schema=_config(sorted(flows)),
    )
    def put_back(context: dg.OpExecutionContext) -> None:
        flow = flows[context.op_config["flow"]]
        _put_back(context, flow, graph.of(flow), context.op_config.get("since"))

    @dg.job(name=NAME, description=_DESCRIPTION, executor_def=dg.in_process_executor)
    def replay_job() -> None:
        put_back()

    return replay_job


def _put_back(
    context: dg.OpExecutionContext, flow: Flow, nodes: Sequence[AssetNode], since: str | None
) -> None:
    """Part by part, each committed whole; asked to stop, it ends after the one it is at."""
    context.instance.add_run_tags(context.run.run_id, {FLOW: flow.id})
    run, interrupts, done = Run(id=context.run.run_id[:12]), Interrupts(), Replayed()
    with log_to_run(flow, context), failing(flow, context), interrupts.defer():
        try:
            spark = context.resources.spark.flow_session
            for part in replay(_awake(flow), spark, run, _since(since)):
                done += part
                if pause := flow.pause_reason():
                    context.log.warning("flow %s: the next replay goes on: %s", flow.id, pause)
                if pause or interrupts.asked:
                    break
        except BaseException:
            if done.entries:
                _tell(context, nodes, done)  # that is committed, whatever came then
            raise
        _tell(context, nodes, done)


def _awake(flow: Flow) -> Flow:
    if pause := flow.pause_reason():
        raise PermanentError(f"flow {flow.id} is {pause}: nothing is written to its tables")
    return flow


def _since(text: str | None) -> datetime | None:
    try:
        return moment(text) if text else None
    except ValueError as error:
        raise PermanentError(f"since: {error}") from None


def _tell(context: dg.OpExecutionContext, nodes: Sequence[AssetNode], done: Replayed) -> None:
    """On the run's page, and as an event of each table that got rows: what reads it is refreshed.

    The events carry no checkpoint: that of the flow has not moved.
    """
    context.log.info("flow %s: %s", nodes[0].flow.id, done)
    counts = {"put_back": done.entries, "rows": done.rows, "rejected_again": done.rejected_again}
    context.add_output_metadata({**counts, "summary": str(done)})
    for node in nodes:
        totals = done.branches.get(node.branch.id, Totals())
        if totals.rows:
            metadata: dict[str, Any] = {"rows": totals.rows, "rejected": totals.rejected}
            metadata["replay"] = str(done)
            key = dg.AssetKey(list(node.key))
            context.log_event(dg.AssetMaterialization(asset_key=key, metadata=metadata))
