"""One job per flow: where continuous runs live."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from dataflow_assets.assets import op_name
from dataflow_assets.assets.graph import Node
from dataflow_assets.assets.runs import DRIVES, FLOW, job_name
from dataflow_assets.flow import Flow

CONTINUOUS_SECONDS = 900.0

Job = Any  # Dagster gives what define_asset_job returns no public name


def run_config(flow: Flow) -> dict[str, Any]:
    """How the flow's own job runs it: continuous sources for a while, others to their end."""
    if not flow.source.continuous:
        return {}
    return {"ops": {op_name(flow): {"config": {"seconds": CONTINUOUS_SECONDS}}}}


def flow_job(flow: Flow, nodes: Sequence[Node]) -> Job:
    """The job of one flow."""
    keys = [dg.AssetKey(list(node.key)) for node in nodes]
    stays = f"stays on for {CONTINUOUS_SECONDS / 60:.0f} minutes" if flow.source.continuous else ""
    return dg.define_asset_job(
        job_name(flow),
        selection=dg.AssetSelection.assets(*keys),
        config=run_config(flow) or None,
        tags={FLOW: flow.id, DRIVES: "true"},
        description=f"Flow {flow.id}: {stays or 'drains to the end visible at its start'}.",
    )
