"""A lane's run through Dagster: many flows in one run, who leaves it, who takes over."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.assets import graph, ingest, lane_runs, leases, mirror, tally
from dataflow_assets.assets.lane_evictions import Evictions
from dataflow_assets.assets.lane_flows import LaneFlows
from dataflow_assets.assets.lane_registry import FlowState, LaneRegistry
from dataflow_assets.assets.lane_runs import LOCATION
from dataflow_assets.assets.leases import ERROR
from dataflow_assets.assets.runs import SENSOR, Runs
from dataflow_assets.connectors.memory import (
    MemoryOffsetSource,
    MemoryPartSource,
    MemorySliceSink,
    Store,
)
from dataflow_assets.contracts import Run, SourceTraits
from dataflow_assets.contracts.declared import KeepsLog
from dataflow_assets.errors import Finding, PermanentError, TransientError
from dataflow_assets.flow import Flow, Policies
from dataflow_assets.location.jobs.ingest import ingest_job
from dataflow_assets.location.sensors.flows import Board
from dataflow_assets.location.sensors.ingest import Location
from dataflow_assets.location.sensors.returns import SETTLED_SECONDS
from dataflow_assets.location.sensors.sources import sources
from dataflow_assets.manifests.load import Loaded
from dataflow_assets.sdk.sink.session import TransactionalSession
from tests.connectors.kafka.test_session import eventually
from tests.dagster.flows import SharedSpark, location, memory_flow
from tests.dagster.switch import later
from tests.lanes.driving import hurry
from tests.stand_in import until

QUIET = 1.0  # seconds, after which a lane ends
OFTEN = Policies(freshness_seconds=4)  # a lane ends sooner, too


class Slot(MemoryOffsetSource, KeepsLog):
    """A topic whose server keeps log for its reader, who may have runs of its own."""

    own_runs: ClassVar[set[str]] = set()

    @property
    def traits(self) -> SourceTraits:
        alone = self.topic in self.own_runs
        return replace(super().traits, reserved=f"slot {self.topic}", incremental=not alone)

    def left_behind(self) -> str:
        return f"slot {self.topic} stays"


class Shop:
    """Flows from topics to tables of their own names, and the runs of their lane."""

    def __init__(
        self,
        store: Store,
        instance: dg.DagsterInstance,
        spark: SparkSession,
        patch: pytest.MonkeyPatch,
    ) -> None:
        self.store, self.instance, self.spark, self.patch = store, instance, spark, patch
        self.flows: list[Flow] = []
        self.findings: tuple[Finding, ...] = ()
        self.folders: tuple[Path, ...] = ()
        self.pool = ThreadPoolExecutor(3)

    kind: type[MemoryOffsetSource] = MemoryOffsetSource

    def add(self, *names: str, **more: Any) -> None:
        for name in names:
            flow = memory_flow(
                self.store, name, topic=name, table=name, policies=OFTEN, kind=self.kind, **more
            )
            self.flows = [*self.flows, flow]

    def edit(self, name: str, /, **more: Any) -> None:
        self.flows = [replace(f, **more) if f.name == name else f for f in self.flows]

    def produce(self, name: str, *ids: int) -> None:
        bodies = [json.dumps({"id": i, "name": f"n{i}"}).encode() for i in ids]
        self.store.produce(name, 0, bodies)

    def rows(self, name: str) -> list[int]:
        found = self.store.query("select row from rows where name = ?", name)
        return sorted(json.loads(row)["id"] for (row,) in found)

    def manifests(self) -> Loaded:
        return Loaded(tuple(self.flows), self.findings, paths=self.folders)

    def lane(self, name: str = "shared", **tags: str) -> dg.ExecuteInProcessResult:
        """Runs the lane to its end; `tags` are of its run."""
        spark = dg.ResourceDefinition.hardcoded_resource(SharedSpark(self.spark))
        config = {"ops": {"drive": {"config": {"lane": name}}}}
        return ingest_job(self.manifests, spark).execute_in_process(
            run_config=config,
            instance=self.instance,
            tags={"dataflow/lane": name, **tags},
            raise_on_error=False,
        )

    def aside(self, idle: float = 60.0, place: str = "") -> Future[dg.ExecuteInProcessResult]:
        """The same, while the test goes on; it ends when nothing came for so many seconds."""
        self.patch.setattr(ingest, "IDLE_SECONDS", idle)
        tags = {LOCATION: place} if place else {}
        return self.pool.submit(self.lane, **tags)

    def ended(self, running: Future[dg.ExecuteInProcessResult]) -> dg.ExecuteInProcessResult:
        """Lets the lane end that runs aside."""
        self.patch.setattr(ingest, "IDLE_SECONDS", QUIET)
        return running.result()

    def own(self, name: str) -> dg.ExecuteInProcessResult:
        """A run of the flow's own."""
        defs = location(self.flows, self.spark)
        return defs.resolve_job_def(f"{name}_job").execute_in_process(
            instance=self.instance, raise_on_error=False
        )

    def events(self, name: str) -> list[Any]:
        store = str(self.flows[0].source.address().connection).replace("-", "_")
        key = dg.AssetKey(["memory", store, name])
        return list(self.instance.fetch_materializations(key, 50, ascending=True).records)

    def log(self, result: dg.ExecuteInProcessResult, name: str) -> str:
        lines = [entry.user_message for entry in self.instance.all_logs(result.run_id)]
        return "\n".join(line for line in lines if f"flow default/{name}:" in line)

    def error(self, result: dg.ExecuteInProcessResult) -> str:
        """Why its run has failed, as its tags keep it for the sensor."""
        run = self.instance.get_run_by_id(result.run_id)
        assert run is not None
        return run.tags[ERROR]

    def driven(self) -> set[str]:
        return set(LaneRegistry(self.instance, "shared").read().flows)


# Two runs in threads of one process would redirect its output at once, and wait for each other.
UNCAPTURED = {
    "compute_logs": {
        "module": "dagster._core.storage.noop_compute_log_manager",
        "class": "NoOpComputeLogManager",
    }
}


@pytest.fixture
def shop(
    store: Store, home: str, engine: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.setenv("DATAFLOW_START", "1")
    monkeypatch.setenv("DATAFLOW_PATIENCE", "1")
    monkeypatch.setattr(ingest, "IDLE_SECONDS", QUIET)
    monkeypatch.setattr(lane_runs, "LOOK_SECONDS", 0.05)
    # Else a lane may let a flow go before the run that leases it looks whether it has to wait.
    monkeypatch.setattr(leases, "PART_SECONDS", 0.0)
    monkeypatch.setattr(tally, "IDLE_SECONDS", 0.2)
    hurry(monkeypatch)
    with dg.DagsterInstance.local_temp(home, overrides=UNCAPTURED) as instance:
        made = Shop(store, instance, engine, monkeypatch)
        yield made
        monkeypatch.setattr(ingest, "IDLE_SECONDS", QUIET)
        made.pool.shutdown()


def test_many_flows_are_driven_in_one_run_and_each_asset_shows_its_checkpoint(shop: Shop) -> None:
    shop.add("a", "b")
    shop.add("c", annotations={"dataflow-assets/lane": "slow"})
    shop.add("d", suspended=True)
    for name in "abcd":
        shop.produce(name, 1, 2, 3)
    shop.store.produce("b", 1, [b"no json"])
    result = shop.lane()
    assert result.success
    assert [shop.rows(name) for name in "abcd"] == [[1, 2, 3], [1, 2, 3], [], []]
    record = shop.events("b")[-1]
    event = record.asset_materialization
    assert record.run_id == result.run_id
    told = [one.asset_materialization.metadata for one in shop.events("b")]
    lines = f"/runs/{result.run_id}?logs=flow%20default%2Fb%3A"
    assert {t["log"].value for t in told} == {lines}
    assert (sum(t["rows"].value for t in told), sum(t["rejected"].value for t in told)) == (3, 1)
    checkpoint = event.metadata["checkpoint"].value
    assert checkpoint["positions"] == {"0": 3, "1": 1}
    assert event.tags["dagster/data_version"] == mirror.version_of(checkpoint)
    assert [c.name for c in event.metadata["dagster/column_schema"].value.columns] == ["id", "name"]
    assert event.metadata["ended"].value == f"nothing came for {QUIET:g} seconds"
    checks = {(c.asset_key.path[-1], c.check_name): c for c in result.get_asset_check_evaluations()}
    assert {key: check.passed for key, check in checks.items()} == {
        ("a", "lag"): True,
        ("a", "rejected"): True,
        ("b", "lag"): True,
        ("b", "rejected"): False,
    }
    assert "leaves the lane: nothing came" in shop.log(result, "a")
    assert shop.driven() == set()


def test_flows_from_topics_and_from_tables_share_a_lane(shop: Shop) -> None:
    shop.add("a", "b")
    store = shop.store.name
    shop.edit("b", source=MemoryPartSource(store=store, topic="b"))
    for name in "ab":
        shop.produce(name, 1, 2)
    running = shop.aside()
    until(lambda: shop.rows("b") == [0, 1])  # the ids of such rows are offsets
    shop.produce("b", 3)
    until(lambda: shop.rows("b") == [0, 1, 2])
    assert shop.ended(running).success
    assert shop.rows("a") == [1, 2]
    assert {event.run_id for event in shop.events("b")} == {running.result().run_id}


def test_a_table_is_told_before_one_that_is_filled_from_it(shop: Shop) -> None:
    """At rest and in between: Dagster shows an asset whose source has the later event unsynced."""
    shop.add("a", "b", "c")
    topics = [flow.source for flow in shop.flows]  # `a` has the address of the table `a`, too
    shop.edit("c", source=topics[1])
    shop.edit("b", source=topics[0])
    shop.patch.setattr(tally, "EVERY_SECONDS", 0.5)
    running = shop.aside()
    for number in range(3):
        shop.produce("a", number)
        shop.produce("b", number)
        until(lambda: shop.rows("c") == shop.rows("b") == shop.rows("a"))
        until(lambda: all(shop.events(name) for name in "abc"))
    assert shop.ended(running).success
    last = {name: [event.storage_id for event in shop.events(name)] for name in "abc"}
    assert all(len(told) >= 2 for told in last.values())
    assert last["a"][-1] < last["b"][-1] < last["c"][-1]


def test_a_table_that_had_nothing_to_read_is_told_behind_its_source(shop: Shop) -> None:
    """The source has its last event when the lane ends: by the clock the table would be behind."""
    shop.add("a", "b", "z")
    topics = [flow.source for flow in shop.flows]
    shop.edit("b", source=topics[0])  # what has the address of the table `a`
    shop.edit("a", source=topics[2])
    for name in "az":
        shop.produce(name, 1)
    assert shop.lane().success
    shop.produce("z", 2)
    assert shop.lane().success
    assert (shop.rows("a"), shop.rows("b")) == ([1, 2], [1])
    assert shop.events("a")[-1].storage_id < shop.events("b")[-1].storage_id
    assert shop.events("b")[-1].asset_materialization.metadata["rows"].value == 0


def test_a_lane_that_finds_nothing_tells_nothing_but_a_lost_mirror(shop: Shop) -> None:
    shop.add("a")
    shop.produce("a", 1)
    shop.lane()
    count = len(shop.events("a"))
    shop.lane()
    assert len(shop.events("a")) == count
    shop.instance.wipe_assets([shop.events("a")[0].asset_key])
    shop.lane()
    (event,) = shop.events("a")
    assert event.asset_materialization.metadata["rows"].value == 0


def test_a_flow_that_fails_leaves_its_lane_until_a_run_of_its_own_has_succeeded(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("a", "b")
    for name in "ab":
        shop.produce(name, 1)
    with monkeypatch.context() as patch:
        _refuse(patch, "b")
        result = shop.lane()
        assert result.success
        assert (shop.rows("a"), shop.rows("b")) == ([1], [])
        assert "has failed and leaves the lane" in shop.log(result, "b")
        assert "b is not there" in Evictions(shop.instance).of(shop.flows)["default/b"].error
        assert not shop.own("b").success
        assert shop.lane().success
        assert shop.rows("b") == []
    assert shop.own("b").success
    assert not Evictions(shop.instance).of(shop.flows)
    shop.produce("b", 2)
    shop.lane()
    assert shop.rows("b") == [1, 2]


def test_one_green_run_ends_the_outage_for_all_flows_of_a_server(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("a", "b")
    for name in "ab":
        shop.produce(name, 1)
    with monkeypatch.context() as patch:
        for name in "ab":
            _refuse_table(patch, name, TransientError)
        assert shop.lane().success
    evictions = Evictions(shop.instance)
    assert evictions.of(shop.flows).keys() == {"default/a", "default/b"}
    assert shop.own("a").success
    with monkeypatch.context() as patch:
        later(patch, SETTLED_SECONDS)
        Location(graph.build(shop.flows), Board()).look(shop.instance)
    sources.close()  # this process has more tests
    assert not evictions.of(shop.flows)
    assert shop.lane().success
    assert (shop.rows("a"), shop.rows("b")) == ([1], [1])


def test_a_flow_of_which_one_branch_fails_for_good_leaves_its_lane(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would hear of it as long as the lane lives."""
    shop.add("b")
    branches = [memory_flow(shop.store, table=name).branches[0] for name in ("a", "second")]
    flow = memory_flow(shop.store, "a", topic="both", branches=tuple(branches))
    shop.flows = [*shop.flows, flow]
    for name in ("b", "both"):
        shop.produce(name, 1)
    with monkeypatch.context() as patch:
        _refuse_table(patch, "second", PermanentError)
        result = shop.lane()
        assert result.success
        assert shop.rows("b") == [1]
        begins = [one for one in shop.log(result, "a").splitlines() if one.endswith(" begins")]
        assert len([one for one in begins if "default/a" in one]) == 1
        assert "one of its branches has failed" in shop.log(result, "a")
        assert "second is not there" in Evictions(shop.instance).of(shop.flows)["default/a"].error
        assert not shop.own("a").success
        assert (shop.rows("a"), shop.rows("second")) == ([1], [])
    assert shop.own("a").success
    assert shop.rows("second") == [1]


def test_a_flow_that_tries_again_says_so_and_is_counted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_PATIENCE", "60")
    shop.add("a", "b")
    for name in "ab":
        shop.produce(name, 1)
    with monkeypatch.context() as patch:
        _refuse_table(patch, "b", TransientError)
        running = shop.aside()
        registry = LaneRegistry(shop.instance, "shared")
        eventually(lambda: registry.read().failing == ["default/b"])
        assert "tries again: " in registry.read().flows["default/b"]
        assert "b is not there" in registry.read().flows["default/b"]
        board = Board()
        location = Location(graph.build(shop.flows), board)
        location.look(shop.instance)
        assert "2 of 2 flows are switched on, 1 have failed" in location.summary
        assert "default/b: in lane shared, has met an error" in location.summary
    eventually(lambda: shop.rows("b") == [1])
    eventually(lambda: registry.read().failing == [])
    assert shop.ended(running).success


def test_a_flow_that_has_nothing_to_read_is_well_again_once_it_could_be_asked(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is committed that would say so."""
    monkeypatch.setenv("DATAFLOW_PATIENCE", "60")
    shop.add("a", "b")
    with monkeypatch.context() as patch:
        _refuse_table(patch, "b", TransientError)
        running = shop.aside()
        registry = LaneRegistry(shop.instance, "shared")
        eventually(lambda: registry.read().failing == ["default/b"])
    eventually(lambda: registry.read().failing == [])
    assert registry.read().flows["default/b"] == "nothing came yet"
    assert shop.ended(running).success


def test_a_flow_that_tries_again_when_the_lane_is_handed_over_has_not_failed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_PATIENCE", "60")
    shop.add("a", "b")
    for name in "ab":
        shop.produce(name, 1)
    with monkeypatch.context() as patch:
        _refuse_table(patch, "b", TransientError)
        first = shop.aside()
        eventually(lambda: LaneRegistry(shop.instance, "shared").read().failing == ["default/b"])
        second = shop.aside()
        old = first.result()
        noted = Evictions(shop.instance).of(shop.flows)
    shop.patch.setattr(ingest, "IDLE_SECONDS", QUIET)
    assert not noted
    assert "had met an error when the lane was to end" in shop.log(old, "b")
    assert (old.success, second.result().success) == (True, True)
    assert shop.rows("b") == [1]


def test_an_edited_manifest_is_tried_at_once(shop: Shop) -> None:
    shop.add("a")
    shop.produce("a", 1)
    Evictions(shop.instance).leave(shop.flows[0], "no such column")
    shop.lane()
    assert shop.rows("a") == []
    shop.edit("a", hash="edited")
    shop.lane()
    assert shop.rows("a") == [1]


def test_edited_added_and_removed_manifests_are_noticed(shop: Shop) -> None:
    shop.kind = Slot
    shop.add("a", "b")
    shop.produce("a", 1)
    running = shop.aside()
    until(lambda: shop.rows("a") == [1])
    shop.edit("a", hash="edited")
    shop.flows = [flow for flow in shop.flows if flow.name != "b"]
    shop.add("c")
    shop.produce("c", 1)
    until(lambda: shop.rows("c") == [1])
    shop.produce("a", 2)
    until(lambda: shop.rows("a") == [1, 2])
    result = shop.ended(running)
    assert "leaves the lane: its manifest changed" in shop.log(result, "a")
    assert "leaves the lane: its manifest was removed" in shop.log(result, "b")
    assert "slot b stays" in shop.log(result, "b")
    assert "slot a stays" not in shop.log(result, "a")


def test_a_slot_is_named_only_where_nobody_reads_it_any_more(shop: Shop, tmp_path: Path) -> None:
    """Whoever follows such a line drops the slot."""
    shop.kind = Slot
    own_runs = set[str]()
    shop.patch.setattr(Slot, "own_runs", own_runs)
    shop.add("always", "off")
    shop.add("broken", file=tmp_path)
    shop.add("gone", "renamed", "moved", file=tmp_path / "gone.yaml")
    shop.add("away", file=tmp_path / "unmounted" / "away.yaml")
    other = tmp_path / "other.yaml"
    other.write_text("{ metadata: { name: moved, labels: { was: gone-by } }", encoding="utf-8")
    running = shop.aside()
    until(lambda: len(shop.driven()) == 7)
    own_runs.add("always")
    shop.edit("off", suspended=True)
    shop.findings = tuple(
        Finding(str(file), 1, 1, "spec", "is missing") for file in (tmp_path / "b.yaml", other)
    )
    shop.folders = (tmp_path, tmp_path / "unmounted")
    shop.edit("renamed", name="newer")
    missing = {"broken", "gone", "moved", "away"}
    shop.flows = [flow for flow in shop.flows if flow.name not in missing]
    until(lambda: shop.driven() == {"default/newer"})
    result = shop.ended(running)
    whys = {
        "always": "it has runs of its own now",
        "off": "its manifest says suspended",
        "broken": "its manifest has mistakes (see `dataflow check`)",
        "gone": "its manifest was removed",
        "renamed": "its manifest was removed",
        "moved": "its manifest has mistakes (see `dataflow check`)",
        "away": "the folder of its manifest does not exist",
    }
    logs = {name: shop.log(result, name) for name in whys}
    assert [name for name in whys if f"leaves the lane: {whys[name]}" not in logs[name]] == []
    assert [name for name in whys if f"slot {name} stays" in logs[name]] == ["off", "gone"]


@pytest.fixture
def looks(shop: Shop) -> tuple[LaneFlows, dict[str, Flow]]:
    """The looks of a lane at which flows to drive, and what the lane has begun."""
    shop.kind = Slot
    shop.add("a")
    job = ingest_job(shop.manifests, dg.ResourceDefinition.none_resource())
    tags = {**job.tags, "dataflow/lane": "shared"}
    run = shop.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags=tags)
    begun: dict[str, Flow] = {}
    given = shop.instance, "shared", run, shop.manifests, lambda _: FlowState("")
    return LaneFlows(*given, driven=lambda: begun), begun


def test_why_a_flow_leaves_is_known_though_it_left_before_the_look(
    shop: Shop, looks: tuple[LaneFlows, dict[str, Flow]]
) -> None:
    flows, _ = looks
    (flow,) = flows.flows_to_drive()
    shop.flows = []
    assert not flows.flows_to_drive()
    assert not flows.flows_to_drive()
    assert (flows.why_not(flow), flows.is_gone(flow)) == ("its manifest was removed", True)


def test_a_flow_that_was_begun_a_moment_ago_is_driven_whatever_was_heard_of_it(
    shop: Shop, looks: tuple[LaneFlows, dict[str, Flow]]
) -> None:
    """A run of its own leases it before its first event is taken, and is over before its last."""
    flows, begun = looks
    (flow,) = flows.flows_to_drive()
    begun[flow.id] = flow
    job = ingest_job(shop.manifests, dg.ResourceDefinition.none_resource())
    own = shop.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    with Runs(shop.instance, flow).driving(own.run_id):
        assert not flows.flows_to_drive()
        assert shop.driven() == {flow.id}, "the run of its own waits for the lane"
    assert flows.flows_to_drive() == [flow]
    begun.clear()
    assert flows.lets_go(flow), "what another run has taken from it is no failure"
    flows.end(flow)
    assert flows.flows_to_drive() == [flow]
    assert not flows.lets_go(flow), "it has begun again since"


def test_a_lane_of_which_its_process_has_no_flow_fails_and_says_where_it_looked(
    shop: Shop, tmp_path: Path
) -> None:
    """A run without the environment of the code server would be started again and again."""
    shop.add("a", annotations={"dataflow-assets/lane": "till"})
    shop.folders = (tmp_path, tmp_path / "nowhere")
    result = shop.lane()
    assert not result.success
    told = shop.error(result)
    assert told.startswith(
        f"lane shared: no flow of this lane is in {tmp_path}, {tmp_path}/nowhere (does not exist) "
        f"(lanes there: till). "
    )
    assert "DATAFLOW_FLOWS" in told
    assert shop.lane("till").success


def test_a_lane_that_never_learns_what_to_drive_fails_with_the_reason(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("a")

    def unreadable(*_: object, **__: object) -> None:
        raise OSError("the volume is gone")

    monkeypatch.setattr("dataflow_assets.assets.switches._states", unreadable)
    result = shop.lane()
    assert not result.success
    assert shop.error(result) == (
        "lane shared: its flows could not be found out: unexpected OSError: the volume is gone"
    )


def test_a_lane_whose_switches_are_on_for_its_sensor_alone_fails_and_says_so(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("a")
    monkeypatch.delenv("DATAFLOW_START")
    result = shop.lane(**{SENSOR: "ingest"})
    assert not result.success
    assert "lane shared: nobody has switched on any of its flows" in shop.error(result)
    assert "set DATAFLOW_START for the processes of runs" in shop.error(result)
    assert shop.lane().success, "started by hand"
    monkeypatch.setattr("dataflow_assets.assets.switches.is_untouched", lambda *_: False)
    assert shop.lane(**{SENSOR: "ingest"}).success, "somebody was quicker"


def test_a_flow_that_is_switched_off_ends_and_the_others_go_on(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("a", "b")
    shop.produce("a", 1)
    running = shop.aside()
    until(lambda: shop.rows("a") == [1])
    off = {"a_sensor": False}
    monkeypatch.setattr("dataflow_assets.assets.switches._states", lambda _, **__: off)
    until(lambda: shop.driven() == {"default/b"})
    shop.produce("a", 2)
    shop.produce("b", 1)
    until(lambda: shop.rows("b") == [1])
    off["b_sensor"] = False
    result = shop.ended(running)
    assert shop.rows("a") == [1]
    assert "leaves the lane: its sensor a_sensor was switched off" in shop.log(result, "a")


def test_a_run_of_a_flows_own_has_the_flow_from_its_lane_and_gives_it_back(shop: Shop) -> None:
    shop.add("a", "b")
    shop.produce("a", 1)
    running = shop.aside()
    until(lambda: shop.rows("a") == [1] and "default/a" in shop.driven())
    own = shop.own("a")
    assert own.success
    lane = LaneRegistry(shop.instance, "shared").read().run
    logged = [entry.user_message for entry in shop.instance.all_logs(own.run_id)]
    assert f"flow default/a: lane shared let it go: /runs/{lane}" in logged
    shop.produce("a", 2)
    until(lambda: shop.rows("a") == [1, 2])
    result = shop.ended(running)
    assert result.success
    assert f"leaves the lane: run {own.run_id[:8]} drives it now" in shop.log(result, "a")
    assert not Evictions(shop.instance).of(shop.flows)


def test_a_newer_run_of_the_lane_takes_over_and_nothing_is_stored_twice(shop: Shop) -> None:
    shop.add("a", "b")
    ended = threading.Event()
    produced = _produce(shop, ended)
    first = shop.aside()
    until(lambda: len(shop.rows("a")) > 3)
    second = shop.aside()
    old = first.result()
    assert old.success
    assert not second.done()
    ended.set()
    new = shop.ended(second)
    assert new.success
    assert f"leaves the lane: run {new.run_id[:8]} of the lane takes over" in shop.log(old, "a")
    count = produced.result()
    assert shop.rows("a") == shop.rows("b") == list(range(count))
    assert not Evictions(shop.instance).of(shop.flows)


def test_the_lane_of_another_location_is_not_taken_over(shop: Shop) -> None:
    """Its flows would be driven by nobody."""
    shop.add("a")
    shop.produce("a", 1)
    running = shop.aside(place="first")
    until(lambda: shop.rows("a") == [1])
    other = shop.lane(**{LOCATION: "second"})
    assert not other.success
    driver = LaneRegistry(shop.instance, "shared").read().run
    assert f"is driven by run {driver[:8]} of location first" in shop.error(other)
    shop.produce("a", 2)
    until(lambda: shop.rows("a") == [1, 2])
    result = shop.ended(running)
    assert result.success
    assert result.run_id == driver


def test_a_newer_run_of_the_lane_takes_over_one_flow_while_another_still_stores(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the slowest micro-batch would hold up every flow of the lane."""
    shop.add("a", "b")
    stored, go_on = threading.Event(), threading.Event()
    with monkeypatch.context() as patch:
        _hold_up(patch, "b", stored, go_on)
        for name in "ab":
            shop.produce(name, 1)
        first = shop.aside()
        until(lambda: stored.is_set() and shop.rows("a") == [1])
        second = shop.aside()
        until(lambda: shop.driven() == {"default/a"})
        shop.produce("a", 2)
        until(lambda: shop.rows("a") == [1, 2])
        assert not first.done()
        go_on.set()
    shop.produce("b", 2)
    until(lambda: shop.rows("b") == [1, 2])
    assert first.result().success
    assert shop.ended(second).success
    assert not Evictions(shop.instance).of(shop.flows)


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_newer_run_takes_what_the_older_one_does_not_let_go(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, gives_up: bool
) -> None:
    """As where the older run was paused when it had begun to hand over, or its flow hangs."""
    monkeypatch.setattr("dataflow_assets.assets.lane_flows.END_SECONDS", 3.0)
    if gives_up:
        monkeypatch.setattr("dataflow_assets.lanes.lane.END_SECONDS", 3.0)
    shop.add("b")
    stored, go_on = threading.Event(), threading.Event()
    with monkeypatch.context() as patch:
        _hold_up(patch, "b", stored, go_on)
        shop.produce("b", 1)
        first = shop.aside()
        until(stored.is_set)
        second = shop.aside(idle=2.0)  # shorter than it waits
        shop.produce("b", 2)
        until(lambda: shop.rows("b") == [1, 2])
        shop.patch.setattr(ingest, "IDLE_SECONDS", 60.0)
        if gives_up:
            until(first.done)
        assert first.done() == gives_up
        go_on.set()
    assert first.result().success
    shop.produce("b", 3)
    until(lambda: shop.rows("b") == [1, 2, 3])
    assert shop.ended(second).success
    assert not Evictions(shop.instance).of(shop.flows)


def test_a_newer_run_that_did_not_wait_keeps_the_flows_it_took(shop: Shop) -> None:
    """As where the older run was paused: it finds its successor when it loses the first flow."""
    shop.add("a", "b")
    ended = threading.Event()
    produced = _produce(shop, ended)
    first = shop.aside()
    until(lambda: len(shop.rows("a")) > 3)
    shop.patch.setattr("dataflow_assets.assets.lane_runs.END_SECONDS", 0.0)
    shop.patch.setattr("dataflow_assets.lanes.lane.WANTED_SECONDS", 600.0)  # the older is blind
    second = shop.aside()
    old = first.result()
    noted = Evictions(shop.instance).of(shop.flows)
    ended.set()
    new = shop.ended(second)
    assert not noted
    assert (old.success, new.success) == (True, True)
    log = shop.log(old, "a") + shop.log(old, "b")
    assert f"yields: run {new.run_id[:8]} of the lane takes over (" in log
    count = produced.result()
    assert shop.rows("a") == shop.rows("b") == list(range(count))


def test_a_run_of_a_flows_own_that_was_over_before_the_micro_batch_is_no_failure(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not wait any longer, and the lane learns of it when the flow is free again."""
    monkeypatch.setattr(lane_runs, "END_SECONDS", 8.0)
    stored, go_on = threading.Event(), threading.Event()
    _hold_up(monkeypatch, "a", stored, go_on)
    shop.add("a")
    shop.produce("a", 1)
    running = shop.aside()
    assert stored.wait(50)
    own = shop.own("a")
    assert own.success
    go_on.set()
    shop.produce("a", 2)
    until(lambda: shop.rows("a") == [1, 2])
    result = shop.ended(running)
    assert result.success
    assert f"yields: run {own.run_id[:8]} drives it now" in shop.log(result, "a")
    assert not Evictions(shop.instance).by_flow(shop.flows)


@pytest.mark.parametrize("how", ["off", "removed"])
def test_a_flow_that_ends_while_its_server_is_down_has_not_failed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """No run of its own would try again, and where it is removed its slot is named."""
    shop.kind = Slot
    monkeypatch.setenv("DATAFLOW_PATIENCE", "600")
    _refuse_table(monkeypatch, "a", TransientError)
    shop.add("a", "b")
    (flow, _), off = shop.flows, dict[str, bool]()
    monkeypatch.setattr("dataflow_assets.assets.switches._states", lambda _, **__: off)
    shop.produce("a", 1)
    running = shop.aside()
    registry = LaneRegistry(shop.instance, "shared")
    until(lambda: registry.read().failing == ["default/a"])
    if how == "off":
        off["a_sensor"] = False
    else:
        shop.flows = shop.flows[1:]
    until(lambda: shop.driven() == {"default/b"})
    log = shop.log(shop.ended(running), "a")
    why = {"off": "its sensor a_sensor was switched off", "removed": "its manifest was removed"}
    assert f"leaves the lane: {why[how]}; it had met an error: a is not there" in log
    assert ("slot a stays" in log) == (how == "removed")
    assert not Evictions(shop.instance).by_flow([flow])


def test_a_lane_that_fails_as_a_whole_has_ended_its_flows(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would go on beside those of the next run."""

    def full(*_: object) -> None:
        raise OSError("no room for events")

    monkeypatch.setattr(ingest.Ingest, "_turn", full)
    shop.add("a")
    shop.produce("a", 1)
    result = shop.lane()
    assert not result.success
    assert "no room for events" in shop.error(result)
    until(lambda: "flow default/a" not in {one.name for one in threading.enumerate()})


def test_a_flow_that_another_driver_takes_leaves_with_a_clear_word(shop: Shop) -> None:
    """As by a run on the command line, of which Dagster knows nothing."""
    shop.add("a")
    shop.produce("a", 1)
    running = shop.aside()
    until(lambda: shop.rows("a") == [1])
    branch = shop.flows[0].branches[0]
    branch.sink.open(shop.flows[0].target(branch), Run()).close()
    shop.produce("a", 2)
    result = shop.ended(running)
    assert result.success
    assert "taken over" in Evictions(shop.instance).of(shop.flows)["default/a"].error


def test_a_signal_ends_every_flow_after_its_micro_batch(shop: Shop) -> None:
    shop.add("a", "b")
    for name in "ab":
        shop.produce(name, 1)

    def interrupt() -> None:
        until(lambda: shop.rows("a") == shop.rows("b") == [1])
        os.kill(os.getpid(), signal.SIGINT)

    asked = threading.Thread(target=interrupt, daemon=True)
    asked.start()
    result = shop.lane()
    asked.join()
    assert result.success
    ended = shop.events("a")[-1].asset_materialization.metadata["ended"].value
    assert ended == "it was asked to stop"


def _refuse(patch: pytest.MonkeyPatch, topic: str) -> None:
    """The topic cannot be read."""
    ends = MemoryOffsetSource.open

    def refuse(self: MemoryOffsetSource, flow: str) -> Any:
        if self.topic == topic:
            raise PermanentError(f"topic {topic} is not there")
        return ends(self, flow)

    patch.setattr(MemoryOffsetSource, "open", refuse)


def _refuse_table(
    patch: pytest.MonkeyPatch, table: str, kind: type[PermanentError | TransientError]
) -> None:
    opened = MemorySliceSink.open

    def refuse(self: MemorySliceSink, *given: Any) -> Any:
        if self.table == table:
            raise kind(f"{table} is not there")
        return opened(self, *given)

    patch.setattr(MemorySliceSink, "open", refuse)


def _hold_up(
    patch: pytest.MonkeyPatch, table: str, stored: threading.Event, go_on: threading.Event
) -> None:
    """The first micro-batch into the table waits when its rows are stored."""
    finish = TransactionalSession.finish

    def wait(self: TransactionalSession, *given: Any) -> Any:
        if getattr(self._sink, "table", "") == table and not stored.is_set():
            stored.set()
            assert go_on.wait(50)
        return finish(self, *given)

    patch.setattr(TransactionalSession, "finish", wait)


def _produce(shop: Shop, ended: threading.Event) -> Future[int]:
    """Numbers into both topics until the test says so; how many."""

    def produce() -> int:
        count = 0
        while not ended.wait(0.1):
            for name in "ab":
                shop.produce(name, count)
            count += 1
        return count

    return shop.pool.submit(produce)
