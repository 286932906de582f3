"""Which run drives a flow, which is dead, and what finding out costs."""

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import dagster as dg
import pytest

from dataflow_assets.assets import graph, heartbeat, leases
from dataflow_assets.assets.drivers import FlowDriver
from dataflow_assets.assets.heartbeat import SILENT_SECONDS, Heartbeat
from dataflow_assets.assets.runs import Runs
from dataflow_assets.connectors.memory import Store
from dataflow_assets.contracts import Run
from dataflow_assets.location.sensors.flows import Board
from dataflow_assets.location.sensors.ingest import Location
from dataflow_assets.location.sensors.sources import sources
from tests.dagster.flows import location, memory_flow
from tests.dagster.switch import Switch, later, mirror
from tests.stand_in import until

STARTED, STARTING = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING
FLOWS = 12
OTHERS = 510


@pytest.fixture
def history(home: str) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(home) as instance:
        yield instance


def test_a_process_is_judged_only_from_its_own_host_and_container() -> None:
    here = FlowDriver.here()
    assert here.alive is True
    assert FlowDriver.parse(str(here)) == here
    assert replace(here, started=here.started - 1).alive is False
    assert replace(here, boot="another").alive is False
    assert replace(here, host="another").alive is None
    assert replace(here, namespace="pid:[1]").alive is None
    assert replace(here, started=0).alive is None  # a system without /proc


def test_a_run_in_another_container_of_the_host_is_not_reported_dead(switch: Switch) -> None:
    """Its number is another process's here, or nobody's."""
    elsewhere = replace(FlowDriver.here(), namespace="pid:[1]", pid=1, started=1)
    live = switch.run(STARTED, driver=elsewhere)
    assert switch.reason() == f"run {live.run_id[:8]} is started"


def test_a_run_elsewhere_is_dead_after_a_long_silence(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = replace(FlowDriver.here(), host="another")
    live = switch.run(STARTED, driver=away)
    later(monkeypatch, SILENT_SECONDS - 10)
    assert "is started" in switch.reason()
    Heartbeat(switch.instance, switch.flow.id).beat(live.run_id)
    later(monkeypatch, SILENT_SECONDS - 10)
    assert "is started" in switch.reason()
    later(monkeypatch, 20)
    switch.tick()
    assert "nothing was heard of it for 10 minutes" in _error(switch, live)


def test_the_signs_of_life_of_another_run_do_not_count(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = switch.run(STARTED, driver=replace(FlowDriver.here(), host="another"))
    later(monkeypatch, SILENT_SECONDS + 10)
    Heartbeat(switch.instance, switch.flow.id).beat("another")
    switch.tick()
    assert "nothing was heard of it for 10 minutes" in _error(switch, live)


def test_a_second_run_does_not_hide_the_signs_of_life_of_the_first(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leases the flow before it looks whether another one drives it."""
    live = switch.run(STARTED, driver=replace(FlowDriver.here(), host="another"))
    later(monkeypatch, SILENT_SECONDS + 10)
    Heartbeat(switch.instance, switch.flow.id).beat(live.run_id)
    second, flows = switch.run(STARTED), Runs(switch.instance, switch.flow)
    with flows.driving(second.run_id):
        other = flows.other(second.run_id)
    assert other is not None
    assert other.run_id == live.run_id
    assert _status(switch, live) == STARTED


@pytest.mark.parametrize("status", [STARTING, STARTED, dg.DagsterRunStatus.NOT_STARTED])
def test_a_run_that_dies_before_it_claims_its_flow_does_not_block_it_for_ever(
    switch: Switch, monkeypatch: pytest.MonkeyPatch, status: dg.DagsterRunStatus
) -> None:
    """As after a power cut; Dagster notices only with `run_monitoring`."""
    dead = switch.run(status)
    assert switch.reason() == f"run {dead.run_id[:8]} is {status.value.lower()}"
    later(monkeypatch, SILENT_SECONDS + 10)
    switch.tick()
    assert "nothing was heard of it for 10 minutes" in _error(switch, dead)


def test_a_run_may_wait_in_the_queue_for_as_long_as_it_takes(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch.run(dg.DagsterRunStatus.NOT_STARTED)
    (record,) = leases.going(switch.instance)
    run = record.dagster_run._replace(status=dg.DagsterRunStatus.QUEUED)
    waiting = dg.RunRecord(1, run, record.create_timestamp, record.update_timestamp)
    later(monkeypatch, 100 * SILENT_SECONDS)
    assert Runs(switch.instance, switch.flow, [waiting]).live() == run


def test_a_run_that_is_started_again_is_not_taken_for_the_dead_one(switch: Switch) -> None:
    """Dagster copies the tags of the run that failed."""
    first = switch.run(STARTED, driver=replace(FlowDriver.here(), boot="another"))
    switch.tick()
    assert "is gone without a word" in _error(switch, first)
    copied = switch.instance.get_run_by_id(first.run_id)
    assert copied is not None
    again = switch.run(STARTING)
    switch.instance.add_run_tags(again.run_id, dict(copied.tags))
    assert switch.reason() == f"run {again.run_id[:8]} is starting"
    assert _status(switch, again) == STARTING


def test_a_run_that_has_ended_since_it_was_read_is_not_reported(switch: Switch) -> None:
    dead = switch.run(STARTED, driver=replace(FlowDriver.here(), boot="another"))
    known = leases.going(switch.instance)
    switch.instance.report_run_canceled(dead)
    assert Runs(switch.instance, switch.flow, known).live() is None
    assert _status(switch, dead) == dg.DagsterRunStatus.CANCELED


def test_a_driver_shows_that_it_is_alive_and_lets_go_of_its_flow(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of several steps goes on for hours after one of them has driven the flow."""
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.01)
    flows, run = Runs(switch.instance, switch.flow), switch.run(STARTED)
    beats, beaten = [], threading.Event()

    def beat(_: Heartbeat, run_id: str) -> None:
        beats.append(run_id)
        beaten.set() if len(beats) > 2 else None

    monkeypatch.setattr(Heartbeat, "beat", beat)
    with flows.driving(run.run_id):
        assert flows.on() == switch.instance.get_run_by_id(run.run_id)
        assert beaten.wait(10)
    assert set(beats) == {run.run_id}
    assert flows.on() is None


def test_a_claim_stands_though_other_steps_of_its_run_overwrite_it(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster writes all tags of a run as they were when it read them: of two steps one loses."""
    monkeypatch.setattr(leases, "LOOK_SECONDS", 0.01)
    flows, run = Runs(switch.instance, switch.flow), switch.run(STARTED)
    write, lost = dg.DagsterInstance.add_run_tags, dict[str, int]()

    def overwritten(instance: dg.DagsterInstance, run_id: str, tags: Mapping[str, str]) -> None:
        lost[str(tags)] = lost.get(str(tags), 0) + 1
        if lost[str(tags)] > 2:
            write(instance, run_id, dict(tags))

    monkeypatch.setattr(dg.DagsterInstance, "add_run_tags", overwritten)
    with flows.driving(run.run_id):
        assert flows.on() is not None
        write(switch.instance, run.run_id, {f"{leases.DRIVER}/{switch.flow.id}": "as before"})
        until(lambda: flows.on() is not None)
    assert flows.on() is None


def test_a_lease_is_given_back_when_the_storage_fails_before_the_flow_is_driven(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other steps of the run go on, and its process may end: nobody would drive the flow."""
    flows, run = Runs(switch.instance, switch.flow), switch.run(STARTED)
    read, failures = dg.DagsterInstance.get_run_by_id, iter([OSError("the storage is away")])

    def look(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRun | None:
        found = read(instance, run_id)
        held = found is not None and f"{leases.DRIVER}/{switch.flow.id}" in found.tags
        if held and (failure := next(failures, None)):
            raise failure
        return found

    monkeypatch.setattr(dg.DagsterInstance, "get_run_by_id", look)
    with pytest.raises(OSError, match="away"), flows.driving(run.run_id):
        pytest.fail("nobody knows whether the lease stands")
    assert flows.on() is None


def test_a_live_run_is_seen_behind_any_number_of_newer_ones(switch: Switch) -> None:
    live = switch.run(STARTED, driver=FlowDriver.here())
    for _ in range(OTHERS):
        other = dg.DagsterRun(job_name="other", run_id=str(uuid.uuid4()), status=STARTED)
        switch.instance.add_run(other)
    assert switch.reason() == f"run {live.run_id[:8]} is started"


def test_many_flows_are_one_look_at_the_runs(
    store: Store, history: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[dg.DagsterInstance] = []

    def look(of: dg.DagsterInstance) -> Sequence[dg.RunRecord]:
        looks.append(of)
        return leases.going(of)

    monkeypatch.setattr("dataflow_assets.location.sensors.ingest.going", look)
    monkeypatch.setenv("DATAFLOW_START", "1")
    flows = [memory_flow(store, f"f{n}", table=f"t{n}") for n in range(FLOWS)]
    for node in graph.build(flows).nodes:
        session = node.branch.sink.open(node.flow.target(node.branch), Run())
        session.restart({"0": 0, "1": 0}, "orders")
        mirror(history, node, session.checkpoint)
    board = Board()
    assert Location(graph.build(flows), board).look(history) == []
    assert all("nothing new" in board.read(flow) for flow in flows)
    assert len(looks) == 1
    sources.close()


def test_a_flows_job_makes_runs_that_sensors_find(switch: Switch) -> None:
    job = location([switch.flow]).resolve_job_def("orders_job")
    assert job.run_tags[leases.DRIVES] == "true"


def _status(switch: Switch, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    found = switch.instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


def _error(switch: Switch, run: dg.DagsterRun) -> str:
    """Why a run was reported as failed."""
    assert _status(switch, run) == dg.DagsterRunStatus.FAILURE
    found = switch.instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.tags[leases.ERROR]
