"""States and mirrored totals of flows in Dagster, for the status of custom resources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import dagster as dg

from dataflow_assets.assets import graph, switches
from dataflow_assets.assets.drive_states import DriveState, states_in
from dataflow_assets.assets.mirrored_checkpoints import mirrored_together
from dataflow_assets.flow import Flow


@dataclass(frozen=True)
class Standing:
    """State and totals of a flow; nothing is known of one that has never run."""

    state: DriveState | None = None
    """None: it is switched on, and nobody drives it now."""
    rows: int | None = None
    """Rows in all of its tables together."""
    rejected: int | None = None
    committed_at: datetime | None = None


def standings(flows: Sequence[Flow]) -> Mapping[str, Standing]:
    """Returns how flows stand by their ids, as the Dagster of DAGSTER_HOME knows it.

    Called by `dataflow k8s watch`, every few seconds. Raises what Dagster raises where its storage
    cannot be read.
    """
    nodes = graph.build(flows)
    with dg.DagsterInstance.get() as instance:
        states = states_in(instance, flows, switches.off(instance, flows))
        mirrors = mirrored_together(instance, [node.key for node in nodes.nodes])
    checkpoints = {
        flow.id: [mirrors[node.key].checkpoint for node in nodes.of(flow)] for flow in flows
    }
    return {flow.id: _standing(states.get(flow.id), checkpoints[flow.id]) for flow in flows}


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
