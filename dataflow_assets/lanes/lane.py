"""Many flows in one process: who takes part, who has left, and what they report."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING

from dataflow_assets.errors import TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.lanes.events import Began, Ended, Event, Failing, Left, Recovered
from dataflow_assets.lanes.joint_jobs import JointJobs
from dataflow_assets.lanes.member import Beside, LaneMember
from dataflow_assets.lanes.pace import TURN_SECONDS
from dataflow_assets.lanes.single_jobs import SingleJobs
from dataflow_assets.runs.request import Report, Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WANTED_SECONDS = 2.0  # between two questions for the flows that the lane shall drive
MOMENT = 0.5  # seconds between two questions whether the lane shall end
POLL_SECONDS = 300.0  # the longest interval of a source that a lane with nothing to do waits for
END_SECONDS = 60.0  # until flows that were asked to end are given up


class Lane:
    """Drives many flows with one Spark session; each keeps its own checkpoint and its own epoch.

    A flow that fails leaves the lane and touches no other. One for each run of the job `ingest`,
    and for each `dataflow run --for`; all methods are called by the thread that iterates over
    `drive`.
    """

    def __init__(self, spark: Callable[[], SparkSession], request: Request) -> None:
        """Nothing is started before `drive`.

        Args:
            spark: gives a live session, each time it is called and in any thread; raises
                TransientError where there is none to be had right now.
            request: that of each flow, but for its time and its end, which are the lane's.
        """
        self._spark, self._request = spark, request
        self._board, self._beside = threading.Condition(), Beside()
        self._members: dict[str, LaneMember] = {}
        self._left: dict[str, str] = {}
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._single = SingleJobs(spark, self._board, self._now)
        self._joint = JointJobs(spark, self._board, self._now, lambda: self._single.lately)
        self._committed = time.monotonic()

    def drive(
        self, wanted: Callable[[], Sequence[Flow]], stop: Callable[[], str | None]
    ) -> Generator[Event, None, None]:
        """Drives the flows until `stop` gives a reason; then each ends after its micro-batch.

        Called once. What goes wrong with a flow is an event, and nothing is raised but what the
        arguments raise, which are called by the same thread. Where the iterator is closed early,
        every flow is asked to end and the jobs that run are waited for.

        Args:
            wanted: the flows that the lane shall drive, asked for every two seconds. A flow that is
                left out, or whose manifest is another, ends after its micro-batch. One that has
                left begins again only after it was left out once, or with another manifest.
            stop: why the lane shall end; None to go on. Asked twice a second.

        Returns:
            What happens, as it happens. None where nothing did for half a second.
        """
        for turns in (self._joint, self._single):
            turns.start()
        self._committed = time.monotonic()  # whoever drives may have waited for another lane
        asked_at = -WANTED_SECONDS
        try:
            while (reason := stop()) is None:
                if time.monotonic() - asked_at >= WANTED_SECONDS:
                    asked_at = time.monotonic()
                    self._adjust({flow.id: flow for flow in wanted()})
                yield self._take()
            self._end_all(reason)
            given_up = time.monotonic() + END_SECONDS
            while self._members or not self._events.empty():
                yield self._take()
                if time.monotonic() >= given_up:
                    given_up = float("inf")
                    self._give_up()
        finally:
            self._end_all("the lane was abandoned")
            for turns in (self._joint, self._single):
                turns.stop()
            for turns in (self._joint, self._single):
                turns.join()
            for member in self._now():
                member.close(TransientError("the lane has ended"))

    def end(self, flow: Flow, reason: str) -> None:
        """The flow ends after its micro-batch; without effect on one that is not driven."""
        if flow.id in self._members:
            self._members[flow.id].end(reason)

    def take_back(self, flow: Flow) -> None:
        """A flow that has left may begin again, with the next look at which flows to drive."""
        self._left.pop(flow.id, None)

    def current_flows(self) -> Mapping[str, Flow]:
        """Returns by its id each flow that was begun, and has not given `Ended` or `Left` yet.

        Asked with each look at which flows to drive.
        """
        return {name: member.flow for name, member in self._members.items()}

    @property
    def idle_seconds(self) -> float:
        """Seconds since a flow could have committed last; 0 while one has something to do.

        0 as well while a flow is driven whose source is known only while it runs. Asked twice a
        second by whoever decides when the lane ends. What is new is not looked at before a flow's
        interval is over.
        """
        members = self._members.values()
        if any(_is_needed(member) for member in members):
            return 0.0
        longest = max(map(self._longest_silence, members), default=0.0)
        return max(0.0, time.monotonic() - self._committed - longest)

    def _longest_silence(self, member: LaneMember) -> float:
        polled = min(member.flow.source.traits.poll_seconds, POLL_SECONDS)
        return max(self._joint.interval(member), polled)

    def state(self, flow: Flow) -> str:
        """The lane's decision on the flow, for people: how often and how much it reads.

        Called every ten seconds or more often, for the page of the lane's registry.
        """
        member = self._members.get(flow.id)
        if member is None:
            return "not in this lane"
        limit = member.limit(flow.policies.limit)
        rarely = " while a backlog is worked off" if self._single.lately else ""
        size = "a part at a time, which others wait for"
        if flow.source.delivers == "messages":
            size = f"a partition at a time, which takes about {TURN_SECONDS:g} s"
        return (
            f"commits at most every {self._joint.interval(member):.1f} s for a freshness of "
            f"{member.freshness:g} s{rarely}; a backlog is read {limit.records:,} records of {size}"
        )

    def _now(self) -> Sequence[LaneMember]:
        return list(self._members.values())

    def _take(self) -> Event:
        try:
            event = self._events.get(timeout=MOMENT)
        except queue.Empty:
            return None
        name = "" if event is None else _flow(event)
        if name not in self._members:
            return None  # of a flow that was given up
        if isinstance(event, Report):
            self._committed = time.monotonic()
        elif isinstance(event, Left | Ended):
            del self._members[event.flow.id]
            if isinstance(event, Left):
                self._left[event.flow.id] = event.flow.hash
        return event

    def _adjust(self, wanted: Mapping[str, Flow]) -> None:
        self._left = {name: seen for name, seen in self._left.items() if name in wanted}
        for name, member in self._members.items():
            if name not in wanted:
                member.end("the flow does not belong to this lane any more")
            elif wanted[name].hash != member.flow.hash:
                member.end("its manifest has changed")
        for name, flow in wanted.items():
            if name not in self._members and self._left.get(name) != flow.hash:
                self._begin(flow)

    def _begin(self, flow: Flow) -> None:
        member = LaneMember(flow, self._request, self._spark, self._board, self._beside)
        self._members[flow.id] = member
        member.start(self._events.put)

    def _give_up(self) -> None:
        """Their threads are left behind; what they may still do is fenced by the next epoch."""
        for member in self._members.values():
            error = TransientError(
                f"flow {member.flow.id}: did not end within {END_SECONDS:g} seconds after it was "
                f"asked to. Nothing is lost: the next run continues from the checkpoint"
            )
            self._events.put(Left(member.flow, error))
            member.close(error)

    def _end_all(self, reason: str) -> None:
        for member in self._members.values():
            member.end(reason)


def _is_needed(member: LaneMember) -> bool:
    return member.busy or member.waiting is not None or member.flow.source.traits.keeps_running


def _flow(event: Began | Report | Failing | Recovered | Left | Ended) -> str:
    return event.flow if isinstance(event, Report) else event.flow.id
