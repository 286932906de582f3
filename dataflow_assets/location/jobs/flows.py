"""One job per flow: its runs by hand, on a schedule, and those of a flow that no lane drives.

Each kind of job of this location has a module of its own; sensors know this one by `Job`.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from dataflow_assets.assets.graph import AssetNode
from dataflow_assets.assets.leases import DRIVES
from dataflow_assets.assets.runs import FLOW, job_name
from dataflow_assets.assets.triggers import trigger_keys
from dataflow_assets.flow import Flow

_RESUMES = {
    "dagster/retry_strategy": "FROM_FAILURE",
    "dagster/retry_on_asset_or_op_failure": "false",
    "dagster/max_retries": "3",
}
"""A run whose process was killed goes on with the step that it was at, where Dagster retries runs
(`run_retries` in dagster.yaml); a step that has failed is not tried again."""

Job = Any  # Dagster gives what define_asset_job returns no public name


def flow_job(flow: Flow, nodes: Sequence[AssetNode]) -> Job:
    keys = [*(dg.AssetKey(list(node.key)) for node in nodes), *trigger_keys(flow)]
    return dg.define_asset_job(
        job_name(flow),
        selection=dg.AssetSelection.assets(*keys),
        executor_def=dg.in_process_executor,  # whatever the others of its location run with
        tags={FLOW: flow.id, DRIVES: "true", **(_RESUMES if flow.schedule else {})},
        description=f"Flow {flow.id}: reads up to the newest record at start, then ends.",
    )
