"""Maintenance windows in Dagster: who pauses, where it is told, and that all goes on by itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.assets import draining, graph
from dataflow_assets.assets.metadata import description, flow_metadata
from dataflow_assets.location.jobs.flows import flow_job
from dataflow_assets.location.sensors.flows import Board, flow_sensor
from dataflow_assets.location.sensors.ingest import Location
from dataflow_assets.location.sensors.lag import lag_sensor
from dataflow_assets.runs.attempt import RunAttempt
from tests.dagster.flows import location
from tests.dagster.switch import Switch
from tests.windows import BERLIN, CLOSED, NIGHTLY, OPEN, REASON, WallClock


@pytest.fixture
def paused(switch: Switch, clock: WallClock) -> Switch:
    """A flow with new records, in its window."""
    switch.flow = replace(switch.flow, maintenance=NIGHTLY)
    switch.produce(3)
    clock.now = OPEN
    return switch


def test_the_sensors_start_nothing_say_why_and_go_on(paused: Switch, clock: WallClock) -> None:
    assert paused.reason() == f"{REASON}; then it goes on"
    job = flow_job(paused.flow, paused.nodes)
    own: Any = flow_sensor(paused.flow, job)(dg.build_sensor_context(paused.instance))
    assert own.skip_message == f"{REASON}; then it goes on"
    clock.now = OPEN + timedelta(hours=2)
    assert paused.tick().job_name == "ingest"


@pytest.mark.parametrize("month", ["2026-10-01", "2027-03-01"])
def test_over_a_simulated_month_with_a_change_of_clocks_the_sensor_keeps_to_the_window(
    paused: Switch, clock: WallClock, month: str
) -> None:
    location = Location(graph.build([paused.flow]), Board())
    clock.now = datetime.fromisoformat(f"{month}T12:00").replace(tzinfo=BERLIN)
    until = clock.now + timedelta(days=31)
    while clock.now < until:
        runs = location.look(paused.instance)
        assert bool(runs) is not NIGHTLY.is_open(clock.now)
        change = NIGHTLY.next_change(clock.now)
        assert change is not None
        clock.now = change


def test_a_flow_that_has_left_its_lane_gets_no_run_of_its_own(
    paused: Switch, clock: WallClock
) -> None:
    paused.leave("the database is down")
    assert paused.reason() == f"{REASON}; then it goes on"


def test_the_asset_page_says_when_and_until_when_it_pauses(
    paused: Switch, clock: WallClock
) -> None:
    (node,) = paused.nodes
    schedule = "`nightly`: every day from 2026-10-01 on, at 02:30 Europe/Berlin, for 2:00:00"
    assert flow_metadata(node)["maintenance_window"] == schedule
    told = f"It pauses in its maintenance window, {schedule}."
    assert told in description(node, graph.build([paused.flow]))
    paused.stand(p0=1)
    sensor = lag_sensor(graph.build([paused.flow]))
    found: Any = sensor(dg.build_sensor_context(paused.instance))
    shown = found.asset_events[0].metadata
    assert (shown["state"].value, shown["paused"].value) == ("Stopped", REASON)
    clock.now = CLOSED
    found = sensor(dg.build_sensor_context(paused.instance, cursor=found.cursor))
    assert "paused" not in found.asset_events[0].metadata


def own_run(switch: Switch, engine: SparkSession) -> dg.ExecuteInProcessResult:
    job = location([switch.flow], engine).resolve_job_def("orders_job")
    return job.execute_in_process(instance=switch.instance, raise_on_error=False)


def log(switch: Switch, result: dg.ExecuteInProcessResult) -> str:
    return "\n".join(entry.user_message for entry in switch.instance.all_logs(result.run_id))


def test_a_run_that_somebody_asks_for_reads_nothing_and_says_why(
    paused: Switch, engine: SparkSession
) -> None:
    result = own_run(paused, engine)
    assert result.success
    assert not paused.store.query("select * from rows")
    told = f"flow default/orders is {REASON}: nothing is read or written"
    assert told in log(paused, result)
    checks = result.get_asset_check_evaluations()
    assert {one.metadata["not_checked"].value for one in checks} == {told}


def test_a_run_under_way_commits_its_micro_batch_first(
    paused: Switch, clock: WallClock, engine: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.now = CLOSED
    read = RunAttempt._read
    limit = replace(paused.flow.policies.limit, records=1)
    paused.flow = replace(paused.flow, policies=replace(paused.flow.policies, limit=limit))

    def opens(self: RunAttempt, *given: Any) -> Any:
        clock.now = OPEN  # while the micro-batch is read
        return read(self, *given)

    monkeypatch.setattr(RunAttempt, "_read", opens)
    monkeypatch.setattr(draining, "SWITCH_SECONDS", 0.0)
    result = own_run(paused, engine)
    assert result.success
    (event,) = result.asset_materializations_for_node("orders")
    assert event.metadata["ended"].value == REASON
    assert len(paused.store.query("select * from rows")) == 1
    clock.now = CLOSED + timedelta(days=1)
    monkeypatch.setattr(RunAttempt, "_read", read)
    assert own_run(paused, engine).success
    assert len(paused.store.query("select * from rows")) == 3
