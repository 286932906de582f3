"""Flows run from the command line: in threads, with signals, and an outcome for each.

Draining goes flow by flow, in the order of their names; flows that stay on for a while are one lane
(dataflow_assets/lanes), for the second one would otherwise never begin. A failing flow does not
stop the others. In its maintenance window a flow of a lane pauses, and a drain ends.

The first SIGINT or SIGTERM asks every run to end after its micro-batch, the second abandons it:
what was committed stays, the rest is read again by the next run.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Literal, TypeVar

from dataflow_assets.contracts import Run, Totals
from dataflow_assets.errors import TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.lanes.events import Began, Ended, Left
from dataflow_assets.lanes.lane import Lane
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Report, Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ending = Literal["done", "stopped", "failed"]
STOPPED = (signal.SIGINT, signal.SIGTERM)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FlowOutcome:
    """The end of one flow's run."""

    flow: Flow
    outcome: Ending
    totals: Totals
    seconds: float
    reason: str = ""
    error: BaseException | None = None


Event = Began | Report | FlowOutcome
Item = TypeVar("Item")


class Stop:
    """A request to stop, once there is one. `code` is the exit code then, as shells have it."""

    def __init__(self, abandon: Callable[[int], None]) -> None:
        self._abandon = abandon
        self.code = 0

    def __call__(self) -> str | None:
        return "stopped on request" if self.code else None

    def ask(self, number: int, _frame: FrameType | None = None) -> None:
        """A signal's handler: the first asks, the second abandons."""
        if self.code:
            self._abandon(128 + number)
        self.code = 128 + number

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Signals come here until the block ends, or for good once one has come."""
        before = {number: signal.signal(number, self.ask) for number in STOPPED}
        try:
            yield
        finally:
            for number, handler in before.items() if not self.code else ():
                signal.signal(number, handler)


def abandon(code: int) -> None:
    """Ends the process at once; threads that wait for a server cannot be asked."""
    os.write(2, b"abandoned; what was committed stays, the next run continues from there\n")
    os._exit(code)


def run(
    flows: Sequence[Flow], spark: Callable[[], SparkSession], request: Request, stop: Stop
) -> Iterator[Event]:
    """Runs the flows; yields what happens as it happens, one Outcome per flow last."""
    if request.seconds is not None and request.until is None:
        return _as_lane(flows, spark, request, stop)
    return _each(flows, spark, request, stop)


def _as_lane(
    flows: Sequence[Flow], spark: Callable[[], SparkSession], request: Request, stop: Stop
) -> Iterator[Event]:
    end = time.monotonic() + (request.seconds or 0.0)
    running = {flow.id: _Running(flow) for flow in flows}

    def over() -> str | None:
        if not running:
            return "every flow has ended"
        return stop() or ("its time is up" if time.monotonic() >= end else None)

    lane = Lane(spark, replace(request, run=Run()))
    for event in lane.drive(partial(_awake, running), over):
        if isinstance(event, Report):
            running[event.flow].add(event)
        if isinstance(event, Began | Report):
            yield event
        elif isinstance(event, Left | Ended) and running[event.flow.id].goes_on(event):
            lane.take_back(event.flow)
        elif isinstance(event, Left):
            yield running.pop(event.flow.id).outcome("failed", event.error)
        elif isinstance(event, Ended):
            yield running.pop(event.flow.id).outcome("stopped" if stop() else "done")
    for one in running.values():  # the lane was asked to end before they began
        yield one.outcome("stopped" if stop() else "done")


def _awake(running: Mapping[str, _Running]) -> list[Flow]:
    for one in running.values():
        one.note_pause()
    return [one.flow for one in running.values() if not one.pause]


def _each(
    flows: Sequence[Flow], spark: Callable[[], SparkSession], request: Request, stop: Stop
) -> Iterator[Event]:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    workers = len(flows) if request.seconds is not None else 1
    waiting = len(flows)
    pool = ThreadPoolExecutor(max(workers, 1), thread_name_prefix="flow")
    try:
        for flow in flows:
            own = replace(request, run=Run(), stop=partial(_why_to_stop, flow, stop))
            pool.submit(_drain, flow, spark, own, events.put)
        while waiting:
            event = take(events)
            waiting -= isinstance(event, FlowOutcome)
            yield event
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def take(events: queue.SimpleQueue[Item]) -> Item:
    """Waits in small steps: a signal's handler runs only between two of them."""
    while True:
        try:
            return events.get(timeout=0.1)
        except queue.Empty:
            continue


def _drain(
    flow: Flow,
    spark: Callable[[], SparkSession],
    request: Request,
    put: Callable[[Event], None],
) -> None:
    running = _Running(flow)
    if reason := request.stop():
        running.reason = reason
        put(running.outcome("stopped"))
        return
    put(Began(flow))
    try:
        for report in drain(flow, spark, request):
            running.add(report)
            put(report)
    except BaseException as error:  # noqa: BLE001 (told to whoever asked for the run)
        put(running.outcome("failed", error))
    else:
        put(running.outcome("stopped" if request.stop() else "done"))


def _why_to_stop(flow: Flow, stop: Stop) -> str | None:
    return stop() or flow.pause_reason() or None


class _Running:
    """A flow's run, as far as it has come."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.reason = self.pause = ""
        self._began, self._totals = time.monotonic(), Totals()
        self._commits = 0

    def add(self, report: Report) -> None:
        self._totals += report.delta
        self._commits += not report.last
        self.reason = report.reason or self.reason

    def note_pause(self) -> None:
        """Says when the flow pauses by its manifest, and when it goes on."""
        before, self.pause = self.pause, self.flow.pause_reason()
        if self.pause and not before:
            log.warning("flow %s: pauses, %s; then it goes on", self.flow.id, self.pause)
        elif before and not self.pause:
            log.warning("flow %s: its maintenance window has closed: it goes on", self.flow.id)

    def goes_on(self, event: Left | Ended) -> bool:
        """Returns whether the flow has left the lane for its maintenance window only."""
        passes = isinstance(event, Ended) or isinstance(event.error, TransientError)
        return bool(self.pause) and passes

    def outcome(self, outcome: Ending, error: BaseException | None = None) -> FlowOutcome:
        seconds = time.monotonic() - self._began
        reason = self.pause or self.reason
        if self._commits and not (self._totals.rows or self._totals.rejected):
            reason += "; no record became a row (`dataflow preview` shows why)"
        return FlowOutcome(self.flow, outcome, self._totals, seconds, reason, error)
