"""When a flow's sensor asks for a run and when it waits, on an ephemeral instance."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dataflow_assets.assets import graph
from dataflow_assets.assets.drivers import FlowDriver
from dataflow_assets.assets.lane_evictions import Evictions
from dataflow_assets.assets.lane_registry import FlowState, LaneRegistry
from dataflow_assets.connectors.memory import MemoryOffsetSource, MemorySliceSink
from dataflow_assets.contracts import Run
from dataflow_assets.errors import Finding, TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.location.jobs.flows import flow_job
from dataflow_assets.location.sensors import reload
from dataflow_assets.location.sensors.flows import flow_sensor
from dataflow_assets.location.sensors.lag import lag_sensor
from dataflow_assets.location.sensors.reload import reload_sensor
from dataflow_assets.manifests.watched import fingerprint
from tests.dagster.switch import Switch, later


def test_a_new_flow_has_its_lane_started_to_store_its_start(switch: Switch) -> None:
    found = switch.tick()
    assert isinstance(found, dg.RunRequest)
    assert (found.job_name, found.run_key) == ("ingest", None)
    assert found.run_config == {"ops": {"drive": {"config": {"lane": "shared"}}}}
    assert found.tags["dataflow/lane"] == "shared"


def test_nothing_new_is_known_without_touching_the_sink(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch.produce(3)
    switch.stand(p0=3)
    assert "nothing new" in switch.reason()  # the first look asks for the truth
    monkeypatch.setattr(MemorySliceSink, "peek", _never)
    assert "nothing new" in switch.reason()
    switch.produce(1)
    assert isinstance(switch.tick(), dg.RunRequest)


def test_new_records_become_a_run(switch: Switch) -> None:
    switch.produce(3)
    switch.stand(p0=2)
    assert isinstance(switch.tick(), dg.RunRequest)


def test_a_new_partition_becomes_a_run(switch: Switch) -> None:
    switch.stand()
    assert "nothing new" in switch.reason()
    source = switch.flow.source.model_copy(update={"partitions": 3})
    switch.flow = replace(switch.flow, source=source, hash="other")
    switch.store.produce("orders", 2, [b"{}"])
    assert isinstance(switch.tick(), dg.RunRequest)


def test_without_a_mirror_the_sink_is_asked(switch: Switch) -> None:
    switch.produce(3)
    branch = switch.flow.branches[0]
    session = branch.sink.open(switch.flow.target(branch), Run())
    session.restart({"0": 3, "1": 0}, "orders")
    assert "nothing new" in switch.reason()
    session.restart({"0": 1, "1": 0}, "orders")
    assert isinstance(switch.tick(), dg.RunRequest)


def test_events_of_others_do_not_hide_the_mirror(switch: Switch) -> None:
    switch.produce(3)
    switch.stand(p0=3)
    key = dg.AssetKey(list(graph.build([switch.flow]).nodes[0].key))
    switch.instance.report_runless_asset_event(dg.AssetMaterialization(key))
    assert "nothing new" in switch.reason()


def test_one_run_at_a_time(switch: Switch) -> None:
    live = switch.run(dg.DagsterRunStatus.STARTED, driver=FlowDriver.here())
    assert switch.reason() == f"run {live.run_id[:8]} is started"


def test_a_dead_run_is_reported_and_does_not_block(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = FlowDriver.here()
    later(monkeypatch, 0)
    switch.leave("no broker")
    dead = switch.run(dg.DagsterRunStatus.STARTED, driver=replace(here, boot="another"))
    assert "failed 2 times in a row; next try in 10 s. Last error: its process" in switch.reason()
    run = switch.instance.get_run_by_id(dead.run_id)
    assert run is not None
    assert run.status == dg.DagsterRunStatus.FAILURE
    later(monkeypatch, 11)
    assert switch.tick().job_name == "orders_job"


def test_a_run_on_another_host_is_not_judged(switch: Switch) -> None:
    away = FlowDriver("another-host", "boot", 1, 1)
    switch.run(dg.DagsterRunStatus.STARTED, driver=away)
    assert "is started" in switch.reason()


def test_failures_make_it_wait_longer_and_say_why(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    later(monkeypatch, 0)
    switch.leave("no broker")
    assert switch.reason() == "failed once; next try in 5 s. Last error: no broker"
    for _ in range(2):
        switch.run(dg.DagsterRunStatus.FAILURE, error="no database")
    assert switch.reason() == "failed 3 times in a row; next try in 20 s. Last error: no database"
    later(monkeypatch, 21)
    assert switch.tick().job_name == "orders_job"


def test_a_flow_that_has_succeeded_by_itself_goes_back_to_its_lane(switch: Switch) -> None:
    switch.produce(3)
    switch.leave("no broker")
    assert "failed once" in switch.reason()
    Evictions(switch.instance).come_back(switch.flow)
    assert switch.tick().job_name == "ingest"
    switch.leave("no broker again")
    assert "failed 2 times in a row; next try in 10 s" in switch.reason()  # it left twice lately


def test_a_run_that_somebody_started_and_that_failed_keeps_no_lane_from_the_flow(
    switch: Switch,
) -> None:
    switch.run(dg.DagsterRunStatus.FAILURE, error="no such time")
    assert switch.tick().job_name == "ingest"


def test_the_wait_ends_at_five_minutes(switch: Switch) -> None:
    switch.leave("no broker")
    for _ in range(10):
        switch.run(dg.DagsterRunStatus.FAILURE, error="no broker")
    assert "next try in 300 s" in switch.reason()


def test_a_permanent_failure_waits_long_unless_the_manifest_changes(switch: Switch) -> None:
    old = switch.flow.version
    switch.leave("no such column")
    switch.run(dg.DagsterRunStatus.FAILURE, error="no such column", permanent="true", manifest=old)
    assert "next try in 300 s. Last error: no such column" in switch.reason()
    switch.flow = replace(switch.flow, hash="edited")
    assert switch.tick().job_name == "ingest"


def test_an_unreachable_source_is_a_reason_to_wait(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: object) -> None:
        raise TransientError("no broker at kafka://user:hunter22@host")

    switch.stand()
    monkeypatch.setattr(MemoryOffsetSource, "open", down)
    reason = switch.reason()
    assert "no broker" in reason
    assert "hunter22" not in reason


def test_suspended_wins_over_the_switch(switch: Switch) -> None:
    switch.flow = replace(switch.flow, suspended=True, file=Path("orders.yaml"), line=3)
    assert switch.reason() == "suspended in its manifest (orders.yaml:3), whatever this switch says"


def test_flows_start_stopped_except_in_the_demo(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _sensor(switch.flow).default_status == dg.DefaultSensorStatus.STOPPED
    monkeypatch.setenv("DATAFLOW_START", "1")
    assert _sensor(switch.flow).default_status == dg.DefaultSensorStatus.RUNNING


def test_the_switches_of_many_flows_tick_less_often(switch: Switch) -> None:
    job = flow_job(switch.flow, switch.nodes)
    assert flow_sensor(switch.flow, job, 5).minimum_interval_seconds == 59
    assert flow_sensor(switch.flow, job, 200).minimum_interval_seconds == 399


def test_the_lag_is_observed_when_it_changes(switch: Switch) -> None:
    switch.produce(3)
    switch.stand(p0=1)
    sensor = lag_sensor(graph.build([switch.flow]))
    found: Any = sensor(dg.build_sensor_context(instance=switch.instance))
    observation, check = found.asset_events
    assert observation.metadata["lag_records"].value == 2
    assert check.check_name == "lag"
    switch.stand(p0=3)
    caught_up: Any = sensor(dg.build_sensor_context(switch.instance, cursor=found.cursor))
    assert caught_up.asset_events[0].metadata["lag_records"].value == 0
    quiet: Any = sensor(dg.build_sensor_context(switch.instance, cursor=caught_up.cursor))
    assert not quiet.asset_events
    assert quiet.skip_reason


def test_a_run_that_commits_tells_its_lag_itself(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror of a live run is some seconds old: its plot would show peaks that never were."""
    switch.produce(3)
    switch.stand(p0=1)
    sensor = lag_sensor(graph.build([switch.flow]))

    def look() -> Any:
        return sensor(dg.build_sensor_context(instance=switch.instance))

    live = switch.run(dg.DagsterRunStatus.STARTED, driver=FlowDriver.here())
    quiet = look()
    assert not quiet.asset_events
    assert "skipped: the active run reports its lag" in quiet.skip_reason.skip_message
    later(monkeypatch, 180)  # and has told nothing since: it hangs, or its commits do
    assert look().asset_events[0].metadata["lag_records"].value == 2
    monkeypatch.undo()
    switch.instance.report_run_failed(live)
    assert look().asset_events[0].metadata["lag_records"].value == 2


def test_the_state_is_observed_when_it_changes(switch: Switch) -> None:
    """The first time its run's own events tell that it is running."""
    switch.stand(p0=0)
    flow, evictions = switch.flow, Evictions(switch.instance)

    def look(flow: Flow, cursor: str | None) -> tuple[list[object], str]:
        sensor = lag_sensor(graph.build([flow]))
        found: Any = sensor(dg.build_sensor_context(switch.instance, cursor=cursor))
        shown = [event.metadata for event in found.asset_events or ()]
        return [one["state"].value for one in shown if "state" in one], found.cursor

    off = replace(flow, suspended=True)
    stopped, cursor = look(off, None)
    assert stopped == ["Stopped"]
    assert look(off, cursor)[0] == []
    evictions.leave(flow, "no such table")
    failed, cursor = look(flow, cursor)
    assert failed == ["Error"]
    assert look(flow, cursor)[0] == []
    evictions.come_back(flow)
    switch.run(dg.DagsterRunStatus.STARTED, driver=FlowDriver.here())
    running, cursor = look(flow, cursor)
    assert running == ["Running"]
    page = {flow.id: FlowState("", failing=True)}
    LaneRegistry(switch.instance, flow.lane).write("r", page)
    assert look(flow, cursor)[0] == ["Error"]


def test_a_flow_whose_lane_was_killed_runs_no_more(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last page of the lane says Running, and gets old; then a new lane takes the flow up."""
    sensor = lag_sensor(graph.build([switch.flow]))
    monkeypatch.setenv("DATAFLOW_START", "1")  # all switches are on
    LaneRegistry(switch.instance, switch.flow.lane).write("r", {switch.flow.id: FlowState("")})
    cursor = None

    def look() -> list[object]:
        nonlocal cursor
        found: Any = sensor(dg.build_sensor_context(switch.instance, cursor=cursor))
        cursor = found.cursor
        return [event.metadata["state"].value for event in found.asset_events or ()]

    assert look() == []
    later(monkeypatch, 61)
    assert look() == ["Stopped"]
    assert look() == []
    monkeypatch.undo()
    monkeypatch.setenv("DATAFLOW_START", "1")
    assert look() == ["Running"]


def test_changed_files_are_loaded_again(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setenv("DATAFLOW_WEBSERVER", "http://web/")
    monkeypatch.setattr(reload, "_reload", lambda url, name: asked.append((url, name)))
    sensor = reload_sensor([tmp_path], fingerprint([tmp_path]), [])

    def said() -> str:
        found: Any = sensor(dg.build_sensor_context(instance=instance))
        return str(found.skip_reason.skip_message)

    assert said() == "the files are as they were loaded"
    (tmp_path / "new.yaml").write_text("kind: DataFlow")
    assert "was asked to load" in said()
    assert "waiting" in said()
    time.sleep(0.1)
    assert asked == [("http://web", "dataflow-assets")]


def test_a_broken_file_fails_its_check_once(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    stamp = fingerprint([tmp_path])
    sensor = reload_sensor([tmp_path], stamp, [Finding("a.yaml", 3, 1, "spec", "is required")])
    found: Any = sensor(dg.build_sensor_context(instance=instance))
    (check,) = found.asset_events
    assert not check.passed
    assert "a.yaml:3:1: spec: is required" in check.metadata["findings"].value
    again: Any = sensor(dg.build_sensor_context(instance=instance, cursor=found.cursor))
    assert not again.asset_events


def _sensor(flow: Flow) -> dg.SensorDefinition:
    return flow_sensor(flow, flow_job(flow, graph.build([flow]).nodes))


def _never(*_: object) -> None:
    pytest.fail("a tick touched the sink although the mirror was there")
