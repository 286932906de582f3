"""Runs of lanes and of flows' own that take over from each other."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from dataflow_assets.assets import ingest, lane_runs
from dataflow_assets.assets.lane_evictions import Evictions
from dataflow_assets.assets.lane_flows import LaneFlows
from dataflow_assets.assets.lane_registry import LaneRegistry
from dataflow_assets.assets.lane_runs import LOCATION
from dataflow_assets.contracts import Run
from dataflow_assets.flow import Flow
from tests.dagster.assets.lanes.shop import Shop, hold_up
from tests.stand_in import until


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


def test_a_run_of_a_flows_own_has_the_flow_from_its_lane_and_gives_it_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("a", "b")
    shop.produce("a", 1)
    _keep_until_waited_for(monkeypatch)
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


def _keep_until_waited_for(patch: pytest.MonkeyPatch) -> None:
    """The lane lets no flow go before a run of the flow's own has seen that it drives it."""
    seen, sleep, without = threading.Event(), time.sleep, LaneFlows._without_own_runs

    def wait(seconds: float) -> None:
        seen.set()
        sleep(seconds)

    def left(self: LaneFlows, flows: Sequence[Flow]) -> Sequence[Flow]:
        return without(self, flows) if seen.is_set() else flows

    patch.setattr(LaneFlows, "_without_own_runs", left)
    patch.setattr(lane_runs, "time", SimpleNamespace(monotonic=time.monotonic, sleep=wait))


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
        hold_up(patch, "b", stored, go_on)
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
        hold_up(patch, "b", stored, go_on)
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
