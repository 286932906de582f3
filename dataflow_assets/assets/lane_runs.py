"""The runs of a lane: which one drives it, and how others wait until it lets go.

A newer run of a lane takes over from an older one: the older sees its lease and lets all flows go.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import dagster as dg

from dataflow_assets.assets.lane_registry import PARTS, LanePage, LaneRegistry, Part
from dataflow_assets.assets.leases import Leases, failed_since, going
from dataflow_assets.assets.switches import INGEST
from dataflow_assets.flow import Flow
from dataflow_assets.lanes.lane import END_SECONDS

LANE = "dataflow/lane"
LOCATION = "dagster/code_location"  # on each run that a location was asked for, by Dagster itself
LOOK_SECONDS = 0.5


class LaneRuns:
    """The runs of one lane of one location.

    `known`: what `going` has found, if it has. `location`: its name in Dagster; empty where nobody
    knows, and then the runs of all locations count.
    """

    def __init__(
        self,
        instance: dg.DagsterInstance,
        lane: str,
        known: Sequence[dg.RunRecord] | None = None,
        location: str = "",
    ) -> None:
        self._instance, self._lane, self._known = instance, lane, known
        self._location = location
        self._leases = Leases(instance, f"lane:{lane}")

    @contextmanager
    def driving(self, run_id: str) -> Iterator[None]:
        """Leases the lane for the run, and shows that it is alive, until the block ends."""
        with self._leases.driving(run_id, {LANE: self._lane}):
            yield

    def live(self) -> Sequence[dg.RunRecord]:
        """Runs that drive the lane or are about to, newest first; dead ones are reported."""
        ours = [record for record in self._all() if self._is_ours(record.dagster_run)]
        return sorted(ours, key=lambda r: (r.create_timestamp, r.dagster_run.run_id), reverse=True)

    def elsewhere(self, run_id: str = "") -> dg.DagsterRun | None:
        """A live run of a lane of this name in another location, whose flows are not in this one.

        Called by the sensor `ingest` with each tick, and by the run of a lane every two seconds:
        with its `run_id`, only a run counts that drives and has started earlier.
        """
        records = [*self._all()]
        others = [record for record in records if not self._is_ours(record.dagster_run)]
        if run_id:
            own = next(
                (_start_order(r) for r in records if r.dagster_run.run_id == run_id), (0.0, "")
            )
            drive = [record for record in others if self._leases.is_held(record.dagster_run)]
            others = [record for record in drive if _start_order(record) < own]
        return min(others, key=_start_order).dagster_run if others else None

    def _all(self) -> Sequence[dg.RunRecord]:
        records = going(self._instance) if self._known is None else self._known
        own = [r for r in records if r.dagster_run.tags.get(LANE) == self._lane]
        return [record for record in own if not self._leases.end_if_dead(record)]

    def _is_ours(self, run: dg.DagsterRun) -> bool:
        """A run that was started without a location may be of any."""
        return not self._location or run.tags.get(LOCATION, self._location) == self._location

    def driver(self) -> dg.DagsterRun | None:
        runs = [record.dagster_run for record in self.live()]
        return next((run for run in runs if self._leases.is_held(run)), None)

    def pages(self) -> Mapping[Part, LanePage]:
        """Returns what its live runs say that they drive.

        Called by the sensors `ingest` and `lag` with each tick, and twice a second by runs that
        wait for a lane.
        """
        live = {record.dagster_run.run_id for record in self.live()}
        read = {part: LaneRegistry(self._instance, self._lane, part).read() for part in PARTS}
        return {part: page for part, page in read.items() if page.run in live}

    def failures(self) -> Sequence[dg.RunRecord]:
        """The latest runs of the lane since the last one that did not fail, newest first."""
        tags = {LANE: self._lane} | ({LOCATION: self._location} if self._location else {})
        filters = dg.RunsFilter(job_name=INGEST, tags=tags)
        return failed_since(self._instance, filters)


def elsewhere(lane: str, other: dg.DagsterRun) -> str:
    """Why a lane cannot be driven, for people."""
    return (
        f"lane {lane} is driven by run {other.run_id[:8]} of location {other.tags.get(LOCATION)}: "
        f"in one Dagster instance a lane of one name can be driven for one location only. Give the "
        f"flows of one location another lane (the annotation dataflow-assets/lane in their "
        f"manifests); where that location is gone, terminate the run"
    )


def _start_order(record: dg.RunRecord) -> tuple[float, str]:
    began = record.start_time or record.create_timestamp.timestamp()
    return began, record.dagster_run.run_id


def wait_for_flow(instance: dg.DagsterInstance, flow: Flow) -> str:
    """Waits until the lane lets a flow go that a run of its own has leased.

    Called in that run, once, before it opens the flow. After a minute the run goes on all the same:
    it takes the flow's epoch, and what the lane still tries to commit is refused.

    Returns:
        The id of the lane's run that was waited for; empty where no live run drove the flow.
    """

    def driver(pages: Mapping[Part, LanePage]) -> str:
        return next((page.run for page in pages.values() if flow.id in page.flows), "")

    return _waited_for(LaneRuns(instance, flow.lane), driver)


def wait_for_predecessor(runs: LaneRuns, run_id: str) -> str:
    """Waits until the run that drove the lane before has begun to let its flows go.

    Called in the run that takes over, once, after it has leased the lane: the other one sees that
    within two seconds, and writes what it has still to let go on a page of its own. After a minute
    the run goes on all the same, as in `wait_for_flow`.

    Returns:
        The id of that other run; empty where no live run drove the lane.
    """

    def driver(pages: Mapping[Part, LanePage]) -> str:
        page = pages.get("driving", LanePage())
        return page.run if page.flows and page.run != run_id else ""

    return _waited_for(runs, driver)


def _waited_for(runs: LaneRuns, driver: Callable[[Mapping[Part, LanePage]], str]) -> str:
    """The last run that was waited for because it drove; empty where none did."""
    run, end = "", time.monotonic() + END_SECONDS
    while time.monotonic() < end and (driving := driver(runs.pages())):
        run = driving
        time.sleep(LOOK_SECONDS)
    return run
