"""The sensor of the location: looks for all flows together, and starts what is needed.

A lane is started while one of its flows has something new and no run of it lives; once it is an
hour old it gets a successor, to which it hands over. A flow that has left its lane, or that no lane
drives, has runs of its own.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg

from dataflow_assets.assets import switches
from dataflow_assets.assets.drive_states import STALE_SECONDS
from dataflow_assets.assets.graph import AssetNode, Graph, Key
from dataflow_assets.assets.heartbeat import SILENT_SECONDS
from dataflow_assets.assets.lane_evictions import Eviction, Evictions
from dataflow_assets.assets.lane_flows import drivable
from dataflow_assets.assets.lane_registry import LanePage, Part
from dataflow_assets.assets.lane_runs import LaneRuns, elsewhere
from dataflow_assets.assets.leases import LIVE, going
from dataflow_assets.assets.runs import Runs, job_name
from dataflow_assets.assets.switches import INGEST
from dataflow_assets.contracts import Positions
from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import Flow
from dataflow_assets.location.jobs.flows import Job
from dataflow_assets.location.jobs.ingest import lane_request
from dataflow_assets.location.sensors.backoff import Waits
from dataflow_assets.location.sensors.checkpoints import Known, checkpoints
from dataflow_assets.location.sensors.flows import Board, board, pause
from dataflow_assets.location.sensors.instances import instance_of, location_name
from dataflow_assets.location.sensors.returns import flows_to_return
from dataflow_assets.location.sensors.sources import News, sources
from dataflow_assets.runs.redaction import mask

INTERVAL_SECONDS = 4  # served every 5 s; 5 would be served every 5 or 10
AT_ONCE = 8  # runs of flows' own that this sensor keeps going
MOST_NAMED = 20  # flows that have failed, in the text of a tick
LONG_SECONDS = 3600.0  # after which a lane hands over: logs rotate, memory is given back


def ingest_sensor(graph: Graph, jobs: Sequence[Job]) -> dg.SensorDefinition:
    """The sensor; `jobs` are those of lanes and of the flows."""
    location = Location(graph, board)

    @dg.sensor(
        name=INGEST,
        jobs=jobs,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts runs for the flows that are switched on and have new records.",
    )
    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        requests = location.look(instance_of(context), location_name(context))
        skip = None if requests else dg.SkipReason(location.summary)
        return dg.SensorResult(run_requests=requests, skip_reason=skip)

    return tick


@dataclass
class _Look:
    """Findings and requests of one tick."""

    instance: dg.DagsterInstance
    location: str
    known: Sequence[dg.RunRecord]
    evictions: Mapping[str, Eviction]
    failing: set[str] = field(default_factory=set)
    """Flows that try again in their lanes, or that no lane can drive."""
    texts: dict[str, str] = field(default_factory=dict)
    asked: list[dg.RunRequest] = field(default_factory=list)


class Location:
    """The flows of a location, and since when each waits for a run of its own."""

    def __init__(self, graph: Graph, board: Board) -> None:
        self._nodes: dict[str, list[AssetNode]] = defaultdict(list)
        for node in graph.nodes:
            self._nodes[node.flow.id].append(node)
        self._flows = [nodes[0].flow for nodes in self._nodes.values()]
        self._own_jobs = {job_name(flow) for flow in self._flows}
        self._board, self._waits = board, Waits()
        self._waiting: dict[str, float] = {}
        self.summary = ""

    def look(self, instance: dg.DagsterInstance, name: str = "") -> list[dg.RunRequest]:
        """The runs that are due; `name` is the location's in Dagster, empty where nobody knows."""
        switches.remember_default(instance)
        on = switches.on(instance, self._flows)
        flows = [flow for flow in self._flows if flow.id in on]
        look = _Look(instance, name, going(instance), _evictions(instance, flows))
        look.texts |= {flow.id: why for flow in flows if (why := pause(flow))}
        idle = [flow for flow in flows if flow.id not in look.texts and not self._busy(look, flow)]
        alone = [flow for flow in idle if not drivable(flow) or flow.id in look.evictions]
        resting = self._lanes(look, [flow for flow in idle if flow not in alone])
        self._news(look, resting, alone)
        self._board.write(look.texts)
        self.summary = self._summary(look, len(flows))
        return look.asked

    def _summary(self, look: _Look, on: int) -> str:
        names = sorted({*look.evictions, *look.failing} & look.texts.keys())
        count = f"{on} of {len(self._flows)} flows are switched on, {len(names)} have failed"
        failed = [f"{name}: {look.texts[name]}" for name in names[:MOST_NAMED]]
        more = len(names) - len(failed)
        rest = [f"and {more} more: each flow's sensor says why"] if more else []
        return "\n".join([count, *failed, *rest])

    def _busy(self, look: _Look, flow: Flow) -> bool:
        live, eviction = Runs(look.instance, flow, look.known).live(), look.evictions.get(flow.id)
        if live is not None:
            why = f"; its last error: {eviction.error}" if eviction else ""
            look.texts[flow.id] = f"run {live.run_id[:8]} is {live.status.value.lower()}{why}"
        return live is not None

    def _lanes(self, look: _Look, flows: Sequence[Flow]) -> list[Flow]:
        """The flows whose lane rests: it is started when one of them has something new."""
        lanes: dict[str, list[Flow]] = defaultdict(list)
        for flow in flows:
            lanes[flow.lane].append(flow)
        resting = []
        for lane, members in lanes.items():
            runs = LaneRuns(look.instance, lane, look.known, look.location)
            live = runs.live()  # reports those that died, before failures are counted
            wait = self._waits.of(f"lane {lane}", "", runs.failures)
            if live:
                pages, newest = runs.pages(), live[0]
                self._note_driven(look, pages, newest.dagster_run, members)
                due = _is_old(newest) or _silence(pages, newest) >= SILENT_SECONDS
                if wait.over and len(live) == 1 and due:
                    look.asked.append(lane_request(lane))  # its successor
            elif other := runs.elsewhere():
                look.texts |= dict.fromkeys((flow.id for flow in members), elsewhere(lane, other))
                look.failing |= {flow.id for flow in members}
            elif wait.over:
                resting += members
            else:
                look.texts |= {flow.id: f"lane {lane} {wait}" for flow in members}
        return resting

    def _note_driven(
        self,
        look: _Look,
        pages: Mapping[Part, LanePage],
        newest: dg.DagsterRun,
        members: Sequence[Flow],
    ) -> None:
        """A lane that lives: how its flows fare in it."""
        states: dict[str, str] = {}
        for page in pages.values():  # the newer run comes last and knows better
            states |= _states_of(page)
        look.failing |= {f.id for f in members for page in pages.values() if f.id in page.failing}
        for flow in members:
            state = states.get(flow.id)
            coming = f"lane {flow.lane} takes it up (run {newest.run_id[:8]})"
            look.texts[flow.id] = f"in lane {flow.lane}, {state}" if state else coming

    def _news(self, look: _Look, resting: Sequence[Flow], alone: Sequence[Flow]) -> None:
        """Looks at what nobody drives; a flow that has left its lane is tried all the same."""
        flows = [*resting, *alone]
        positions = checkpoints.positions(
            look.instance, [n for f in flows for n in self._nodes[f.id]]
        )
        news = sources.news([(flow, self._readers(flow, positions)) for flow in flows])
        behind = {flow.id: self._lagging(look, flow, news[flow.id], positions) for flow in flows}
        for lane in sorted({flow.lane for flow in resting if behind[flow.id]}):
            look.asked.append(lane_request(lane))
        for flow in resting:
            if behind[flow.id]:
                look.texts[flow.id] = f"lane {flow.lane} is being started"
        due = [flow for flow in alone if self._is_due(look, flow, news[flow.id], behind)]
        look.asked += self._own(look, due, behind)

    def _is_due(
        self, look: _Look, flow: Flow, news: News, behind: Mapping[str, Sequence[AssetNode]]
    ) -> bool:
        """A run of the flow's own would only fail where its source cannot be asked."""
        left = flow.id in look.evictions and not isinstance(news, DataflowError)
        return left or bool(behind[flow.id])

    def _readers(self, flow: Flow, known: Mapping[Key, Known]) -> tuple[Positions | None, ...]:
        checkpoints_read = [known[node.key] for node in self._nodes[flow.id]]
        return tuple(one for one in checkpoints_read if not isinstance(one, DataflowError))

    def _lagging(
        self, look: _Look, flow: Flow, news: News, known: Mapping[Key, Known]
    ) -> list[AssetNode]:
        """The branches that have something to read.

        One whose sink cannot be asked hinders no other: it is told when there is nothing else.
        """
        failed = [known[node.key] for node in self._nodes[flow.id]]
        errors = [one for one in [*failed, news] if isinstance(one, DataflowError)]
        readable = [n for n in self._nodes[flow.id] if not isinstance(known[n.key], DataflowError)]
        sentences = [f"cannot look for new data: {error}" for error in errors]
        look.texts[flow.id] = mask([*sentences, f"nothing new in {flow.source_address}"][0], [flow])
        if isinstance(news, DataflowError):
            return []
        return [node for node, new in zip(readable, news, strict=True) if new]

    def _own(
        self, look: _Look, flows: Sequence[Flow], behind: Mapping[str, Sequence[AssetNode]]
    ) -> Iterator[dg.RunRequest]:
        """Runs of the flows' own, those that wait for the longest time first."""
        live = [record.dagster_run.job_name for record in look.known]
        free = AT_ONCE - sum(name in self._own_jobs for name in live)
        now = time.monotonic()
        self._waiting = {flow.id: self._waiting.get(flow.id, now) for flow in flows}
        for flow in sorted(flows, key=lambda flow: self._waiting[flow.id]):
            runs, eviction = Runs(look.instance, flow), look.evictions.get(flow.id)
            wait = self._waits.of(flow.id, flow.version, runs.failures, eviction)
            if not wait.over and not wait.without_harm(behind[flow.id]):
                look.texts[flow.id] = str(wait)
            elif free <= 0:
                look.texts[flow.id] = f"waits for one of {AT_ONCE} places for runs of flows' own"
            else:
                free -= 1
                del self._waiting[flow.id]
                look.texts[flow.id] = "a run of its own is being started"
                yield dg.RunRequest(job_name=job_name(flow))


def _evictions(instance: dg.DagsterInstance, flows: Sequence[Flow]) -> Mapping[str, Eviction]:
    evictions = Evictions(instance)
    evicted = evictions.by_flow(flows)
    back = {flow.id: flow for flow in flows_to_return(flows, evicted)}
    evictions.let_back(back.values())
    left = [flow for flow in flows if flow.id in evicted and evicted[flow.id].out(flow)]
    return {flow.id: evicted[flow.id] for flow in left if flow.id not in back}


def _is_old(record: dg.RunRecord) -> bool:
    began = record.start_time or record.create_timestamp.timestamp()
    return record.dagster_run.status in LIVE and time.time() - began >= LONG_SECONDS


def _silence(pages: Mapping[Part, LanePage], record: dg.RunRecord) -> float:
    """Seconds since a run that has flows has written its page, as it does all the time."""
    own = [page for page in pages.values() if page.run == record.dagster_run.run_id and page.flows]
    return min(map(_age, own), default=0.0)


def _age(page: LanePage) -> float:
    return time.time() - page.at


def _states_of(page: LanePage) -> Mapping[str, str]:
    if _age(page) < STALE_SECONDS:
        return page.flows
    quiet = f"whose run {page.run[:8]} has said nothing for {_age(page):.0f} s"
    return dict.fromkeys(page.flows, f"{quiet}: its process may be paused, or hang")
