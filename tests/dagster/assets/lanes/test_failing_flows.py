"""Flows that fail in a lane's run: who leaves, who tries again."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dataflow_assets.assets import graph, ingest, lane_runs
from dataflow_assets.assets.lane_evictions import Evictions
from dataflow_assets.assets.lane_flows import LaneFlows
from dataflow_assets.assets.lane_registry import LaneRegistry
from dataflow_assets.connectors.memory import (
    MemoryOffsetSource,
    MemorySliceSink,
)
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.location.sensors.flows import Board
from dataflow_assets.location.sensors.ingest import Location
from dataflow_assets.location.sensors.returns import SETTLED_SECONDS
from dataflow_assets.location.sensors.sources import sources
from tests.connectors.kafka.test_session import eventually
from tests.dagster.assets.lanes.shop import QUIET, Shop, Slot, hold_up
from tests.dagster.flows import memory_flow
from tests.dagster.switch import later
from tests.stand_in import until


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


def test_why_a_flow_leaves_is_known_though_it_left_before_the_look(
    shop: Shop, looks: tuple[LaneFlows, dict[str, Flow]]
) -> None:
    flows, _ = looks
    (flow,) = flows.flows_to_drive()
    shop.flows = []
    assert not flows.flows_to_drive()
    assert not flows.flows_to_drive()
    assert (flows.why_not(flow), flows.is_gone(flow)) == ("its manifest was removed", True)


def test_a_run_of_a_flows_own_that_was_over_before_the_micro_batch_is_no_failure(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not wait any longer, and the lane learns of it when the flow is free again."""
    monkeypatch.setattr(lane_runs, "END_SECONDS", 8.0)
    stored, go_on = threading.Event(), threading.Event()
    hold_up(monkeypatch, "a", stored, go_on)
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
