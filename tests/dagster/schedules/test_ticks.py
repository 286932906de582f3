"""Ticks of a schedule: which start a run, which are skipped and why, which end the run before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.assets import leases
from dataflow_assets.assets.drivers import FlowDriver
from dataflow_assets.connectors.memory import Store
from dataflow_assets.flow import Flow
from dataflow_assets.location.schedules.flows import flow_schedule
from dataflow_assets.schedules.cron import CronTimes
from dataflow_assets.schedules.maintenance_window import MaintenanceWindow
from dataflow_assets.schedules.schedule import ConcurrencyPolicy, Schedule
from tests.dagster.flows import location, memory_flow

DRIVER = f"{leases.DRIVER}/default/orders"
YEARLY = Schedule(CronTimes.parse("0 3 1 1 *"))


@pytest.fixture
def instance(home: str) -> Iterator[dg.DagsterInstance]:
    """On disk: a tick opens its own."""
    with dg.DagsterInstance.local_temp(home) as instance:
        yield instance


def tick(
    instance: dg.DagsterInstance, flow: Flow, late: timedelta = timedelta()
) -> dg.RunRequest | str:
    """What a tick that comes so late does: a run, or the reason why not."""
    assert flow.schedule is not None
    defined = flow_schedule(flow, flow.schedule, location([flow]).resolve_job_def("orders_job"))
    due = datetime.now(UTC) - late
    context = dg.build_schedule_context(instance=instance, scheduled_execution_time=due)
    done = defined.evaluate_tick(context)
    if done.run_requests:
        (request,) = done.run_requests
        return request
    return str(done.skip_message)


def going(instance: dg.DagsterInstance, flow: Flow) -> dg.DagsterRun:
    """A run of the flow's job that has begun, in this process."""
    job = location([flow]).resolve_job_def("orders_job")
    run = instance.create_run_for_job(
        job, status=dg.DagsterRunStatus.STARTED, tags={leases.DRIVES: "true"}
    )
    lease = leases.value(run.run_id, FlowDriver.here())
    instance.add_run_tags(run.run_id, {DRIVER: lease})
    return run


def test_a_tick_starts_a_run_that_knows_when_it_was_due(
    store: Store, instance: dg.DagsterInstance
) -> None:
    request = tick(instance, memory_flow(store, schedule=YEARLY))
    assert isinstance(request, dg.RunRequest)
    assert "dataflow/tick" in request.tags


@pytest.mark.parametrize(
    ("schedule", "late", "reason"),
    [
        (replace(YEARLY, deadline_seconds=3600), 7200, "more than startingDeadlineSeconds 3600"),
        (replace(YEARLY, suspended=True), 0, "suspend is true ("),
        (replace(YEARLY, times=CronTimes.parse("* * * * *")), 7200, "missed; the tick of "),
    ],
)
def test_a_tick_that_starts_no_run_says_why(
    store: Store, instance: dg.DagsterInstance, schedule: Schedule, late: int, reason: str
) -> None:
    skipped = tick(instance, memory_flow(store, schedule=schedule), timedelta(seconds=late))
    assert isinstance(skipped, str)
    assert reason in skipped


def test_a_tick_within_its_deadline_starts_a_run(
    store: Store, instance: dg.DagsterInstance
) -> None:
    flow = memory_flow(store, schedule=replace(YEARLY, deadline_seconds=36_000))
    assert isinstance(tick(instance, flow, timedelta(hours=1)), dg.RunRequest)


def test_a_flow_that_its_manifest_suspends_has_no_run(
    store: Store, instance: dg.DagsterInstance
) -> None:
    flow = memory_flow(store, schedule=YEARLY, suspended=True)
    assert "suspended" in str(tick(instance, flow))


def test_a_tick_in_a_maintenance_window_starts_no_run(
    store: Store, instance: dg.DagsterInstance
) -> None:
    now = datetime.now(UTC)
    window = MaintenanceWindow(now - timedelta(hours=1), timedelta(days=1), description="backup")
    flow = memory_flow(store, schedule=YEARLY, maintenance=window)
    assert "in maintenance window `backup` until" in str(tick(instance, flow))


@pytest.mark.parametrize("policy", ["Forbid", "Allow", "Replace"])
def test_a_tick_beside_a_run_that_is_not_over(
    store: Store,
    instance: dg.DagsterInstance,
    policy: ConcurrencyPolicy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = memory_flow(store, schedule=replace(YEARLY, policy=policy))
    run, ended = going(instance, flow), list[str]()
    monkeypatch.setattr(type(instance.run_coordinator), "cancel_run", _note(ended))
    done = tick(instance, flow)
    assert isinstance(done, dg.RunRequest) == (policy != "Forbid")
    assert ended == ([run.run_id] if policy == "Replace" else [])
    if policy == "Forbid":
        assert f"concurrencyPolicy Forbid: /runs/{run.run_id} is started" in str(done)


def _note(ended: list[str]) -> Any:
    def cancel(_: Any, run_id: str) -> bool:
        ended.append(run_id)
        return True

    return cancel


@pytest.mark.parametrize("policy", ["Forbid", "Replace"])
def test_a_run_whose_process_is_gone_holds_up_no_tick(
    store: Store, instance: dg.DagsterInstance, policy: ConcurrencyPolicy
) -> None:
    flow = memory_flow(store, schedule=replace(YEARLY, policy=policy))
    run = going(instance, flow)
    dead = replace(FlowDriver.here(), started=1)
    lease = leases.value(run.run_id, dead)
    instance.add_run_tags(
        run.run_id,
        {DRIVER: "done", f"{leases.DRIVER}/{flow.id}:triggers": lease},
    )
    assert isinstance(tick(instance, flow), dg.RunRequest)
    ended = instance.get_run_by_id(run.run_id)
    assert ended is not None
    assert ended.status == dg.DagsterRunStatus.FAILURE


def test_a_run_that_may_overlap_reads_once_the_one_before_has_read(
    store: Store,
    instance: dg.DagsterInstance,
    engine: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = memory_flow(store, schedule=replace(YEARLY, policy="Allow"))
    run, waited = going(instance, flow), list[float]()

    def end(seconds: float) -> None:
        waited.append(seconds)
        instance.add_run_tags(run.run_id, {DRIVER: "done"})

    monkeypatch.setattr("dataflow_assets.assets.build.time.sleep", end)
    store.produce("orders", 0, [b'{"id": 1, "name": "n"}'])
    job = location([flow], engine).resolve_job_def("orders_job")
    done = job.execute_in_process(instance=instance, raise_on_error=False)
    assert done.success
    assert waited
    assert len(store.query("select row from rows where name = ?", "orders")) == 1
