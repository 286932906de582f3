"""Who drives a flow in Dagster and how it fares there, for the command line."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from dataflow_assets.assets.lane_book import PARTS, Book
from dataflow_assets.assets.lane_departures import Departures
from dataflow_assets.assets.lane_flows import WRITE_SECONDS
from dataflow_assets.flow import Flow

STALE_SECONDS = 6 * WRITE_SECONDS  # of a page whose run is gone, or has been paused


@dataclass(frozen=True)
class DriveState:
    """For people: which lane, and what it has chosen, or why the flow has left it."""

    text: str
    failing: bool = False
    """The flow has met an error, and is tried again."""

    @property
    def name(self) -> str:
        """As SingleStore's pipelines call it."""
        return "Error" if self.failing else "Running"


def drive_states(flows: Sequence[Flow]) -> Mapping[str, DriveState]:
    """What the Dagster of DAGSTER_HOME knows of the flows.

    Called by `dataflow status`, once: a question to Dagster's storage, and two for each lane.
    Raises what Dagster raises where its storage cannot be read.

    Returns:
        By the id of a flow its state; no entry for a flow that no lane drives or has driven.
    """
    with dg.DagsterInstance.get() as instance:
        out = Departures(instance).of(flows)
        driven = _driven(instance, {flow.lane for flow in flows})
    left = {
        name: DriveState(f"has left its lane, runs of its own try again: {one.error}", failing=True)
        for name, one in out.items()
    }
    return {**driven, **left}


def _driven(instance: dg.DagsterInstance, lanes: set[str]) -> dict[str, DriveState]:
    found: dict[str, DriveState] = {}
    for lane in lanes:
        for part in PARTS:  # the newer run comes last and knows better
            page = Book(instance, lane, part).read()
            if time.time() - page.at < STALE_SECONDS:
                for name, text in page.flows.items():
                    found[name] = DriveState(f"in lane {lane}, {text}", name in page.failing)
    return found
