"""The sensor of the location: which lanes it starts, which runs of flows' own, and what it says."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import dagster as dg
import pytest

from dataflow_assets.assets import graph, leases
from dataflow_assets.assets.drivers import FlowDriver
from dataflow_assets.assets.heartbeat import SILENT_SECONDS, Heartbeat
from dataflow_assets.assets.lane_evictions import Evictions
from dataflow_assets.assets.lane_registry import FlowState, LaneRegistry
from dataflow_assets.assets.lane_runs import LOCATION, LaneRuns
from dataflow_assets.connectors.memory import MemoryPartSource, MemorySliceSink, Store
from dataflow_assets.connectors.memory.source.session import MemoryPartSession
from dataflow_assets.contracts import Run, SourceTraits
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.location.sensors.flows import Board
from dataflow_assets.location.sensors.ingest import AT_ONCE, LONG_SECONDS, Location
from dataflow_assets.location.sensors.returns import SETTLED_SECONDS
from dataflow_assets.location.sensors.sources import sources
from tests.dagster.flows import location, memory_flow
from tests.dagster.switch import later

STARTED, FAILURE = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE


class Shop:
    """Flows of one location, all switched on, and its sensor ticked by hand."""

    def __init__(self, store: Store, instance: dg.DagsterInstance) -> None:
        self.store, self.instance = store, instance
        self.flows: list[Flow] = []
        self.board, self.summary = Board(), ""

    def add(self, name: str, lane: str = "shared", *, news: bool = True) -> Flow:
        notes = {"dataflow-assets/lane": lane}
        flow = memory_flow(self.store, name, topic=name, table=name, annotations=notes)
        self.flows.append(flow)
        if not news:  # a checkpoint at the end of an empty topic
            branch = flow.branches[0]
            branch.sink.open(flow.target(branch), Run()).restart({"0": 0, "1": 0}, name)
        return flow

    def add_table(self, name: str, kind: type[MemoryPartSource] = MemoryPartSource) -> Flow:
        store = self.store.name
        source = kind(store=store, topic=name)
        branches = (Branch(MemorySliceSink(store=store, table=name)),)
        flow = Flow("default", name, source, branches, hash="h" * 64)
        self.flows.append(flow)
        return flow

    def tick(self, name: str = "") -> list[str]:
        """The runs that are asked for: the lane, or the job of the flow."""
        found = Location(graph.build(self.flows), self.board)
        asked = found.look(self.instance, name)
        self.summary = found.summary
        return [one.tags.get("dataflow/lane") or str(one.job_name) for one in asked]

    def said(self, flow: Flow) -> str:
        return self.board.read(flow)

    def run(
        self, lane: str, status: dg.DagsterRunStatus = STARTED, place: str = ""
    ) -> dg.DagsterRun:
        """A run of a lane; one that is started has leased it."""
        job = location(self.flows).resolve_job_def("ingest")
        known = {leases.DRIVES: "true", "dataflow/lane": lane}
        known |= {LOCATION: place} if place else {}
        made = self.instance.create_run_for_job(job, status=STARTED, tags=known)
        if status == FAILURE:
            self.instance.report_run_failed(made)
        else:
            own = leases.value(made.run_id, FlowDriver.here())
            self.instance.add_run_tags(made.run_id, {f"{leases.DRIVER}/lane:{lane}": own})
        return made


@pytest.fixture
def shop(store: Store, instance: dg.DagsterInstance) -> Iterator[Shop]:
    yield Shop(store, instance)
    sources.close()


def test_each_lane_with_something_new_is_started_once(shop: Shop) -> None:
    shop.add("a")
    shop.add("b")
    shop.add("c", "slow")
    idle = shop.add("d", "idle", news=False)
    assert shop.tick() == ["shared", "slow"]
    assert shop.said(shop.flows[0]) == "lane shared is being started"
    assert "nothing new in" in shop.said(idle)


def test_a_lane_that_lives_is_not_started_and_says_how_its_flows_fare(shop: Shop) -> None:
    first, second = shop.add("a"), shop.add("b")
    run = shop.run("shared")
    LaneRegistry(shop.instance, "shared").write(run.run_id, {first.id: FlowState("2 s behind")})
    assert shop.tick() == []
    assert shop.said(first) == "in lane shared, 2 s behind"
    assert shop.said(second) == f"lane shared takes it up (run {run.run_id[:8]})"


def test_a_lane_gets_a_successor_after_an_hour(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.add("a")
    shop.run("shared")
    later(monkeypatch, LONG_SECONDS + 1)
    assert shop.tick() == ["shared"]
    shop.run("shared")  # it is coming
    assert shop.tick() == []


def test_a_lane_of_another_location_is_left_alone_and_named(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of this location would take the lane, and none of its flows."""
    flow = shop.add("a")
    other = shop.run("shared", place="second")
    assert shop.tick("first") == []
    driven = f"lane shared is driven by run {other.run_id[:8]} of location second: "
    assert shop.said(flow).startswith(driven)
    assert "annotation dataflow-assets/lane" in shop.said(flow)
    assert shop.summary.startswith("1 of 1 flows are switched on, 1 have failed\ndefault/a: lane")
    later(monkeypatch, LONG_SECONDS + 1)
    assert shop.tick("first") == []
    assert shop.tick("second") == ["shared"], "its successor"
    shop.instance.report_run_canceled(other)
    assert shop.tick("first") == ["shared"]


def test_a_lane_that_fails_in_another_location_makes_nobody_wait_here(shop: Shop) -> None:
    shop.add("a")
    shop.run("shared", FAILURE, "second")
    assert shop.tick("second") == []
    assert shop.tick("first") == ["shared"]


def test_a_lane_that_has_not_begun_gets_no_successor(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("a")
    job = location(shop.flows).resolve_job_def("ingest")
    tags = {leases.DRIVES: "true", "dataflow/lane": "shared"}
    waits = shop.instance.create_run_for_job(job, tags=tags)
    assert waits.status == dg.DagsterRunStatus.NOT_STARTED
    later(monkeypatch, LONG_SECONDS + 1)
    Heartbeat(shop.instance, "lane:shared").beat(waits.run_id)  # or it would count as dead
    assert shop.tick() == []


def test_a_lane_whose_process_is_paused_says_so_and_gets_a_successor(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = shop.add("a")
    run = shop.run("shared")
    LaneRegistry(shop.instance, "shared").write(run.run_id, {flow.id: FlowState("2 s behind")})
    later(monkeypatch, 120)
    assert shop.tick() == []
    assert shop.said(flow).startswith(
        f"in lane shared, whose run {run.run_id[:8]} has said nothing for 120 s"
    )
    monkeypatch.undo()
    later(monkeypatch, SILENT_SECONDS + 1)
    assert shop.tick() == ["shared"]


def test_a_successor_that_fails_is_not_asked_for_again_at_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("a")
    shop.run("shared")
    later(monkeypatch, LONG_SECONDS + 1)
    shop.run("shared", FAILURE)
    assert shop.tick() == []
    later(monkeypatch, LONG_SECONDS + 60)
    assert shop.tick() == ["shared"]


def test_a_lane_whose_process_died_is_reported_and_waits_as_one_that_failed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = shop.add("a")
    run = shop.run("shared")
    later(monkeypatch, 0)
    gone = FlowDriver.here()
    dead = leases.value(run.run_id, FlowDriver(gone.host, "another", 1, 1, gone.namespace))
    shop.instance.add_run_tags(run.run_id, {f"{leases.DRIVER}/lane:shared": dead})
    assert shop.tick() == []
    found = shop.instance.get_run_by_id(run.run_id)
    assert found is not None
    assert found.status == FAILURE
    assert "lane shared failed once; next try in 5 s. Last error: its process" in shop.said(flow)
    later(monkeypatch, 6)
    assert shop.tick() == ["shared"]


def test_flows_that_have_left_their_lane_run_by_themselves_eight_at_a_time(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    later(monkeypatch, 0)
    for number in range(AT_ONCE + 2):
        Evictions(shop.instance).leave(shop.add(f"f{number}"), "no database")
    assert shop.tick() == []
    assert shop.said(shop.flows[0]) == "failed once; next try in 5 s. Last error: no database"
    assert shop.summary.splitlines()[:2] == [
        "10 of 10 flows are switched on, 10 have failed",
        "default/f0: failed once; next try in 5 s. Last error: no database",
    ]
    later(monkeypatch, 6)
    assert shop.tick() == [f"f{number}_job" for number in range(AT_ONCE)]
    assert "waits for one of 8 places" in shop.said(shop.flows[-1])


@pytest.fixture
def elsewhere(shop: Shop) -> Iterator[Flow]:
    """A flow of the shop into another database."""
    store = Store(f"{uuid.uuid4().hex[:8]}-elsewhere")
    store.create()
    flow = shop.add("elsewhere")
    sink = MemorySliceSink(store=store.path.stem.removeprefix("dataflow-memory-"), table="t")
    shop.flows[-1] = replace(flow, branches=(Branch(sink),))
    yield shop.flows[-1]
    store.remove()


def test_flows_go_back_when_another_one_has_shown_that_their_servers_work(
    shop: Shop, elsewhere: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run for each of two hundred flows, eight at a time, would take a quarter of an hour."""
    evictions = Evictions(shop.instance)
    first, second, wrong = (shop.add(name) for name in "abc")
    later(monkeypatch, 0)
    for flow in (first, second, elsewhere):
        evictions.leave(flow, "no answer", passing=True)
    evictions.leave(wrong, "no such column")
    later(monkeypatch, 1)
    evictions.come_back(first)
    shop.tick()
    assert shop.said(second) == "failed once; next try in 4 s. Last error: no answer"
    later(monkeypatch, SETTLED_SECONDS)
    assert "shared" in shop.tick()
    assert shop.said(second) == "lane shared is being started"
    for flow in (wrong, elsewhere):
        assert shop.said(flow) == "a run of its own is being started"
    later(monkeypatch, 200)
    for flow in (first, second):
        evictions.leave(flow, "no answer", passing=True)
    later(monkeypatch, 1)
    evictions.come_back(first)
    shop.tick()
    assert shop.said(second).startswith("failed 2 times in a row"), "it was not the server"


class Query(MemoryPartSource):
    """Each read is of all its rows."""

    @property
    def traits(self) -> SourceTraits:
        return replace(super().traits, incremental=False)


def test_a_flow_from_a_table_is_driven_by_its_lane_and_one_from_a_query_by_itself(
    shop: Shop,
) -> None:
    shop.add_table("customers")
    shop.add_table("report", Query)
    for name in ("customers", "report"):
        shop.store.produce(name, 0, [json.dumps({"id": 1, "name": "n"}).encode()])
    assert shop.tick() == ["shared", "report_job"]


class Unmade(MemoryPartSource):
    """A table that is still to be made."""

    made: ClassVar[bool] = False

    def open(self, flow: str) -> MemoryPartSession:
        if not Unmade.made:
            raise PermanentError("the table does not exist")
        return super().open(flow)


def test_a_flow_that_has_left_its_lane_waits_for_its_source(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Unmade, "made", False)
    flow = shop.add_table("orders", Unmade)
    later(monkeypatch, 0)
    Evictions(shop.instance).leave(flow, "the table does not exist")
    later(monkeypatch, 6)
    assert shop.tick() == []
    assert shop.said(flow) == "cannot look for new data: the table does not exist"
    assert shop.summary.splitlines()[1] == f"{flow.id}: {shop.said(flow)}"
    monkeypatch.setattr(Unmade, "made", True)
    assert shop.tick() == ["orders_job"]


def test_switches_are_asked_in_one_look(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.add("a")
    off = shop.add("b")
    monkeypatch.setattr(
        "dataflow_assets.assets.switches._states",
        lambda _, **__: {"a_sensor": True, "b_sensor": False},
    )
    assert shop.tick() == ["shared"]
    assert "switched on; the sensor ingest" in shop.said(off)  # it was not looked at


def test_a_board_that_nobody_writes_says_so(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = shop.add("a")
    shop.tick()
    now = time.monotonic() + 31
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert "waiting for the sensor ingest" in shop.said(flow)


def test_the_newest_run_of_a_lane_is_its_driver(shop: Shop) -> None:
    shop.add("a")
    _, second = shop.run("shared"), shop.run("shared")
    found = LaneRuns(shop.instance, "shared").driver()
    assert found is not None
    assert found.run_id == second.run_id
