"""Flows run from the command line over the begin and the end of a maintenance window."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from dataflow_assets.cli import running
from dataflow_assets.connectors.memory import Store
from dataflow_assets.contracts import Limit
from dataflow_assets.flow import Flow, Policies
from dataflow_assets.runs.attempt import RunAttempt
from dataflow_assets.runs.request import Request
from tests.dagster.flows import memory_flow
from tests.lanes.driving import hurry
from tests.stand_in import until
from tests.windows import NIGHTLY, OPEN, REASON, WallClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(monkeypatch)


@pytest.fixture
def flow(store: Store) -> Flow:
    """With two records waiting, of which a micro-batch reads one."""
    store.produce("orders", 0, [b'{"id": 1, "name": "a"}', b'{"id": 2, "name": "b"}'])
    return memory_flow(store, maintenance=NIGHTLY, policies=Policies(limit=Limit(1, 1000)))


def rows(store: Store) -> int:
    return len(store.query("select * from rows"))


class Running:
    """A run of `dataflow run` aside, until it is asked to stop."""

    def __init__(self, flow: Flow, engine: SparkSession, request: Request) -> None:
        self.stop = running.Stop(running.abandon)
        self.events: list[running.Event] = []
        self._thread = threading.Thread(target=self._run, args=(flow, engine, request))
        self._thread.start()

    def _run(self, flow: Flow, engine: SparkSession, request: Request) -> None:
        for event in running.run([flow], lambda: engine, request, self.stop):
            self.events.append(event)

    def outcome(self) -> running.FlowOutcome:
        self._thread.join()
        (outcome,) = [one for one in self.events if isinstance(one, running.FlowOutcome)]
        return outcome


@pytest.fixture
def opens_meanwhile(clock: WallClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The window opens while the first micro-batch is read."""
    read = RunAttempt._read

    def opens(self: RunAttempt, *given: object) -> object:
        clock.now = max(clock.now, OPEN)
        return read(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(RunAttempt, "_read", opens)


@pytest.mark.usefixtures("opens_meanwhile")
def test_a_drain_ends_after_its_micro_batch_and_says_why(
    flow: Flow, store: Store, engine: SparkSession
) -> None:
    run = Running(flow, engine, Request())
    outcome = run.outcome()
    assert (outcome.outcome, outcome.reason, outcome.totals.rows) == ("stopped", REASON, 1)
    assert rows(store) == 1


@pytest.mark.usefixtures("opens_meanwhile")
def test_a_lane_pauses_and_goes_on_by_itself(
    flow: Flow,
    store: Store,
    engine: SparkSession,
    clock: WallClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hurry(monkeypatch)
    paused = f"flow default/orders: pauses, {REASON}; then it goes on"
    run = Running(flow, engine, Request(seconds=600.0))
    until(lambda: paused in caplog.messages)
    stored = rows(store)
    assert stored >= 1
    clock.now = OPEN + timedelta(hours=2)
    store.produce("orders", 0, [b'{"id": 3, "name": "c"}'])
    until(lambda: rows(store) == 3)
    run.stop.code = 130
    outcome = run.outcome()
    assert (outcome.outcome, outcome.totals.rows) == ("stopped", 3)
    assert "flow default/orders: its maintenance window has closed: it goes on" in caplog.messages


def test_a_lane_that_ends_in_the_window_has_read_nothing_and_says_why(
    flow: Flow,
    store: Store,
    engine: SparkSession,
    clock: WallClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hurry(monkeypatch)
    clock.now = OPEN
    outcome = Running(flow, engine, Request(seconds=0.2)).outcome()
    assert (outcome.outcome, outcome.reason) == ("done", REASON)
    assert rows(store) == 0
