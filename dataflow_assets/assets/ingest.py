"""The run of a lane: what its flows commit becomes events of their assets, in one run.

Of a table and one that is filled from it the events come in this order, whatever else is due: an
asset whose source has the later event is shown as unsynced, although it has read all of it.

An event costs Dagster some 15 ms and four rows: those of all flows together come one after the
other, each flow's at most every ten seconds, and the one that waits longest first.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

import dagster as dg

from dataflow_assets.assets.failures import may_pass, sentence
from dataflow_assets.assets.flow_events import FlowEvents, LastEvents
from dataflow_assets.assets.graph import AssetNode, Key, upstream
from dataflow_assets.assets.lane_evictions import Evictions
from dataflow_assets.assets.lane_flows import LaneFlows, Manifests
from dataflow_assets.assets.lane_registry import FlowState
from dataflow_assets.assets.metadata import log_link
from dataflow_assets.assets.mirrored_checkpoints import outdated_keys
from dataflow_assets.assets.run_log import Lines
from dataflow_assets.assets.runs import SENSOR
from dataflow_assets.assets.stopping import Interrupts
from dataflow_assets.assets.switches import INGEST
from dataflow_assets.contracts.declared import KeepsLog
from dataflow_assets.errors import (
    DataflowError,
    PermanentError,
    TakenOver,
    TransientError,
    describe_unexpected,
)
from dataflow_assets.flow import Flow
from dataflow_assets.lanes.events import Began, Ended, Event, Failing, Left, Recovered
from dataflow_assets.lanes.lane import Lane
from dataflow_assets.runs.redaction import mask
from dataflow_assets.runs.request import Report

EVENT_SECONDS = 0.3  # between two events of the run: 200 flows have one a minute each
LINES_SECONDS = 1.0  # between two events with lines of a flow in the log
LINES_FLOWS = 20  # whose lines are written at once: an event takes milliseconds
IDLE_SECONDS = 60.0  # a lane ends when nothing came for so long

LaneEvent = dg.AssetMaterialization | dg.AssetCheckEvaluation
Making = Callable[[AssetNode], dg.AssetMaterialization | None]
Nodes = Callable[[Flow], Sequence[AssetNode]]


class Ingest:
    """Drives a lane and tells what becomes of its flows; one for each run of the job `ingest`."""

    def __init__(
        self,
        context: dg.OpExecutionContext,
        lane: Lane,
        name: str,
        manifests: Manifests,
        nodes: Nodes,
    ) -> None:
        """`name`: of the lane; `nodes` gives the assets of a flow as it is driven."""
        self._context, self._lane, self._nodes = context, lane, nodes
        self._failing: dict[str, Failing] = {}
        self._lane_flows = LaneFlows(
            context.instance, name, context.run, manifests, self._state, driven=lane.current_flows
        )
        self._evictions = Evictions(context.instance)
        self._interrupts = Interrupts()
        self._flows: dict[str, Flow] = {}
        self._events: dict[str, FlowEvents] = {}
        self._over = LastEvents()
        self._ending = False
        self._last_shown: dict[Key, AssetNode] = {}
        """What has had its last event of this run."""
        self._untold = set[str]()
        """Flows whose events cannot be made: they leave for that."""
        self._next = self._next_lines = 0.0
        self._lines = Lines(self._flows)

    def events(self) -> Iterator[LaneEvent]:
        """Runs the lane to its end; the events of its run as they come.

        Called once, in the main thread of the run's process, where signals arrive. Raises what
        Dagster raises when it cannot store an event or a line of the log; what fails in a flow is
        noted, and the lane goes on. Raises PermanentError where this process can drive none at all.
        """
        driven = self._lane.drive(self._lane_flows.flows_to_drive, self._reason)
        with self._lines.collect(), self._interrupts.defer(), closing(driven):
            for event in driven:
                self._take(event)
                self._say()
                yield from self._turn()
            while self._over:
                yield from self._last_of(self._over.next())
            self._say_all()
        # A lane that can drive nothing would end green, and be started again and again.
        if self._lane_flows.refused:
            raise PermanentError(self._lane_flows.refused)
        if self._flows or self._interrupts.asked:
            return
        by_sensor = self._context.run.tags.get(SENSOR) == INGEST
        if refusal := self._lane_flows.idle_reason(asked=by_sensor):
            raise PermanentError(refusal)

    def _reason(self) -> str | None:
        """Why to end; the flows then end one after the other."""
        reason = self._why_to_end()
        self._ending = reason is not None
        return reason

    def _why_to_end(self) -> str | None:
        if reason := self._interrupts.reason() or self._lane_flows.over:
            return reason
        if self._lane_flows.awaited:
            return None
        if self._lane_flows.none:
            return "none of its flows is to be driven"
        idle = self._lane.idle_seconds >= IDLE_SECONDS
        return f"nothing came for {IDLE_SECONDS:.0f} seconds" if idle else None

    def _state(self, flow: Flow) -> FlowState:
        if failing := self._failing.get(flow.id):
            text = mask(sentence(failing.error), [flow])
            return FlowState(f"has met an error and tries again: {text}", failing=True)
        events = self._events.get(flow.id)
        if events is None or not events.has_reports:
            return FlowState("nothing came yet")
        behind = events.lag_seconds()
        age = "an unknown time" if behind is None else f"{behind:.0f} s"
        return FlowState(f"{age} behind; {self._lane.state(flow)}")

    def _take(self, event: Event) -> None:
        match event:
            case Began(flow):
                self._flows[flow.id] = flow
                link = log_link(self._context.run.run_id, flow)
                self._events[flow.id] = FlowEvents(self._nodes(flow), link)
                self._untold.discard(flow.id)
            case Report():
                with self._alone(event.flow):
                    self._events[event.flow].take(event)
                self._note_recovery(event)
            case Failing(flow, _, lasting):
                if flow.id not in self._failing:
                    self._lane_flows.note_change()
                self._failing[flow.id] = event
                if lasting:  # a run of its own tells of it; here nobody would for an hour
                    self._lane.end(flow, "one of its branches has failed")
            case Recovered(flow):
                self._well(flow.id)
            case Ended(flow, reason):
                why = self._lane_flows.why_not(flow) or reason
                self._log(logging.INFO, flow, f"leaves the lane: {why}")
                self._end(flow)
            case Left(flow, error):
                self._note_failure(flow, error)
                self._end(flow)

    @contextmanager
    def _alone(self, flow_id: str) -> Iterator[None]:
        """A mistake of this program about one flow's events: that flow leaves, the others go on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - of this flow alone
            if flow_id not in self._untold:
                flow = self._flows[flow_id]
                why = mask(f"{describe_unexpected(error)}: {error}", [flow])
                text = f"its events cannot be made: {why}"
                self._untold.add(flow_id)
                self._evictions.leave(flow, text)
                self._log(logging.ERROR, flow, f"leaves the lane: {text}")
                self._lane.end(flow, text)

    def _tell(
        self, events: FlowEvents, node: AssetNode, make: Making | None = None
    ) -> Iterator[LaneEvent]:
        """The event that waits to be told, if one does; or what else is to be made of it."""
        event = None
        with self._alone(node.flow.id):
            event = (make or events.event)(node)
        if event is not None:
            yield event

    def _evaluations(self, events: FlowEvents) -> Sequence[LaneEvent]:
        checks: list[dg.AssetCheckEvaluation] = []
        with self._alone(events.nodes[0].flow.id):
            checks += events.evaluations()
        return checks

    def _note_recovery(self, report: Report) -> None:
        failing = self._failing.get(report.flow)
        if failing is not None and failing.error.branch in (None, report.branch.id):
            self._well(report.flow)

    def _well(self, flow: str) -> None:
        if self._failing.pop(flow, None) is not None:
            self._lane_flows.note_change()

    def _note_failure(self, flow: Flow, error: BaseException) -> None:
        """A failure is noted, but not of a flow that another run has leased, or that is to end."""
        text = mask(sentence(error), [flow])
        if isinstance(error, TakenOver) and self._lane_flows.lets_go(flow):
            self._log(logging.INFO, flow, f"yields: {self._lane_flows.why_not(flow)} ({text})")
            self._lane.take_back(flow)  # the other run may be over before we look again
            return
        why = "" if self._lane_flows.over else self._lane_flows.why_not(flow)
        if why and isinstance(error, TransientError):
            had = f"leaves the lane: {why}; it had met an error: {text}"
            self._log(logging.WARNING, flow, had)
            self._lane.take_back(flow)
            return
        ends = bool(self._lane_flows.over or self._interrupts.reason())
        tried = flow.id in self._failing or bool(self._lane_flows.successor)
        if ends and tried and isinstance(error, TransientError):
            self._log(logging.WARNING, flow, f"had met an error when the lane was to end: {text}")
            return
        self._evictions.leave(flow, text, passing=may_pass(error))
        again = "a run of its own tries again"
        self._log(logging.ERROR, flow, f"has failed and leaves the lane; {again}: {text}")

    def _end(self, flow: Flow) -> None:
        if self._lane_flows.is_gone(flow) and (left := _left_behind(flow)):
            self._log(logging.WARNING, flow, left)
        self._failing.pop(flow.id, None)
        self._over.add(self._events.pop(flow.id))
        self._lane_flows.end(flow)

    def _log(self, level: int, flow: Flow, text: str) -> None:
        self._lines.add(level, flow.id, text)

    def _say(self) -> None:
        """Writes what was gathered, once a second: many lines of a flow cost what one does."""
        if time.monotonic() >= self._next_lines:
            self._next_lines = time.monotonic() + LINES_SECONDS
            self._say_all(LINES_FLOWS)

    def _say_all(self, most: int | None = None) -> None:
        for level, text in self._lines.take(most):
            self._context.log.log(level, text)

    def _turn(self) -> Iterator[LaneEvent]:
        """Tells of one asset where that is due: of the one whose last event is the oldest."""
        now = time.monotonic()
        if now < self._next:
            return
        due = [(one.since(node), one, node) for one in self._events.values() for node in one.due()]
        if due:
            _, events, node = min(due, key=lambda found: found[0])
            yield from self._before(node)
            yield from self._tell(events, node)
            yield from self._evaluations(events)
        elif self._over and not (self._ending and not self._lane_flows.successor):
            # Where all flows end now, with no run to go on with them, last events come in order.
            yield from self._last_of(self._over.next())
        self._next = time.monotonic() + EVENT_SECONDS

    def _before(self, node: AssetNode) -> Iterator[LaneEvent]:
        here = [(events, one) for events in self._events.values() for one in events.nodes]
        for one in upstream((each for _, each in here), node):
            events = next(events for events, each in here if each.key == one.key)
            yield from self._tell(events, one)

    def _would_look_behind(self, events: FlowEvents, node: AssetNode) -> bool:
        """It has read all of a table whose last event came just now, and would be unsynced."""
        return bool(upstream(self._last_shown.values(), node)) and events.lag_seconds() == 0

    def _last_of(self, events: FlowEvents) -> Iterator[LaneEvent]:
        ended = events.ended_nodes()
        still = {node.key for node in ended if not events.has_commits(node)}
        stored = {key: one for key, one in events.checkpoints().items() if key in still}
        lost = outdated_keys(self._context.instance, stored)
        for node in events.nodes:
            yield from self._before(node)
            if node not in ended:
                yield from self._tell(events, node)  # what was reported is committed
            elif (
                events.has_commits(node)
                or node.key in lost
                or self._would_look_behind(events, node)
            ):
                self._last_shown[node.key] = node
                yield from self._tell(events, node, events.final_event)
        yield from self._evaluations(events)


def _left_behind(flow: Flow) -> str:
    try:
        source = flow.resolve().source
        return mask(source.left_behind(), [flow]) if isinstance(source, KeepsLog) else ""
    except DataflowError:
        return ""
