"""Drivers of flows in Dagster and their states, for the command line."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import dagster as dg

from dataflow_assets.assets import switches
from dataflow_assets.assets.lane_evictions import Evictions
from dataflow_assets.assets.lane_flows import WRITE_SECONDS
from dataflow_assets.assets.lane_registry import PARTS, LaneRegistry
from dataflow_assets.assets.leases import Leases, going
from dataflow_assets.flow import Flow

STALE_SECONDS = 6 * WRITE_SECONDS  # of a page whose run is gone, or has been paused


RUNNING: Literal["Running"] = "Running"
ERROR: Literal["Error"] = "Error"
STOPPED: Literal["Stopped"] = "Stopped"


@dataclass(frozen=True)
class DriveState:
    """For people: which lane, and what it has chosen, or why the flow is in none."""

    text: str
    name: Literal["Running", "Error", "Stopped"] = RUNNING
    """As SingleStore's pipelines call it. Error: the flow has met one, and is tried again."""

    @property
    def failing(self) -> bool:
        return self.name == ERROR


def drive_states(flows: Sequence[Flow]) -> Mapping[str, DriveState]:
    """Returns what the Dagster of DAGSTER_HOME knows of the flows.

    Called by `dataflow status`, once. Raises what Dagster raises where its storage cannot be read.

    Returns:
        As `states_in` does.
    """
    with dg.DagsterInstance.get() as instance:
        return states_in(instance, flows, switches.off(instance, flows))


def states_in(
    instance: dg.DagsterInstance, flows: Sequence[Flow], off: Collection[str]
) -> Mapping[str, DriveState]:
    """Returns how flows fare in Dagster.

    Called by `dataflow status` once, and by the sensor `lag` with each tick: four questions to
    Dagster's storage, and two for each lane. Raises what the storage raises.

    Args:
        instance: of Dagster.
        flows: that are asked about.
        off: the ids of those that are switched off.

    Returns:
        By the id of a flow its state; no entry for a flow that is switched on, and that nobody
        drives now.
    """
    stopped = {name: DriveState("its switch is off", STOPPED) for name in off}
    out = Evictions(instance).of([flow for flow in flows if flow.id not in off])
    left = {
        name: DriveState(f"has left its lane, runs of its own try again: {one.error}", ERROR)
        for name, one in out.items()
    }
    return {**stopped, **_alone(instance, flows), **_states_in_lanes(instance, flows), **left}


def _alone(instance: dg.DagsterInstance, flows: Sequence[Flow]) -> dict[str, DriveState]:
    states: dict[str, DriveState] = {}
    records = [*reversed(going(instance))]  # the newer run comes last and knows better
    for flow in flows:
        leases = Leases(instance, flow.id)
        for record in records:
            if leases.is_held(record.dagster_run):
                states[flow.id] = _own(leases.dead(record))
    return states


def _own(death: str) -> DriveState:
    if death:
        return DriveState(f"its run has died: {death}", ERROR)
    return DriveState("driven by a run of its own")


def _states_in_lanes(instance: dg.DagsterInstance, flows: Sequence[Flow]) -> dict[str, DriveState]:
    states: dict[str, DriveState] = {}
    for lane in {flow.lane for flow in flows}:
        for part in PARTS:  # the newer run comes last and knows better
            page = LaneRegistry(instance, lane, part).read()
            if time.time() - page.at < STALE_SECONDS:
                for name, text in page.flows.items():
                    state = ERROR if name in page.failing else RUNNING
                    states[name] = DriveState(f"in lane {lane}, {text}", state)
    return states
