"""`dataflow status` says what Dagster's lanes have chosen for a flow, and who fails there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import dagster as dg
import pytest

from dataflow_assets.assets import drive_states, switches
from dataflow_assets.assets.drivers import FlowDriver
from dataflow_assets.assets.lane_evictions import Evictions
from dataflow_assets.assets.lane_registry import FlowState, LaneRegistry
from dataflow_assets.assets.leases import DRIVER, DRIVES, value
from dataflow_assets.assets.runs import Runs
from dataflow_assets.cli import commands, main
from dataflow_assets.connectors.memory import Store
from dataflow_assets.manifests.load import load

FLOW = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: {name}, annotations: {{dataflow-assets/lane: till}}}}
spec:
  source: {{type: memory-offsets, config: {{store: {store}, topic: {name}}}}}
  sink: {{type: memory-slice, config: {{store: {store}, table: {name}}}}}
"""
CHOSEN = "2 s behind; commits at most every 2.5 s for a freshness of 10 s"


@pytest.fixture
def flows(tmp_path: Path, store: Store) -> Path:
    folder = tmp_path / "flows"
    folder.mkdir()
    for name in ("driven", "left", "retried", "nowhere"):
        store.produce(name, 0, [b"{}"])
        (folder / f"{name}.yaml").write_text(FLOW.format(name=name, store=store.path))
    return folder


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv("DATAFLOW_START", "1")  # all switches are on
    with dg.DagsterInstance.get() as instance:
        yield instance


def written(instance: dg.DagsterInstance, flows: Path) -> None:
    """Of four flows one is driven, one tries again, one has left, and one is not in the lane."""
    failing = FlowState("has met an error and tries again: no answer", failing=True)
    states = {"default/driven": FlowState(CHOSEN), "default/retried": failing}
    LaneRegistry(instance, "till").write("a-run", states)
    (left,) = [flow for flow in load([flows]).flows if flow.name == "left"]
    Evictions(instance).leave(left, "table t does not exist")


def test_the_lane_and_its_choice_are_said_and_failures_come_first(
    flows: Path, instance: dg.DagsterInstance, capsys: pytest.CaptureFixture[str]
) -> None:
    written(instance, flows)
    assert main(["status", str(flows)]) == 0
    said = capsys.readouterr()
    assert sorted(said.err.splitlines()) == [
        "default/left: has left its lane, runs of its own try again: table t does not exist",
        "default/retried: in lane till, has met an error and tries again: no answer",
    ]
    assert said.out.splitlines()[-1].endswith("not known; 2 of them failing")
    (driven,) = [line for line in said.out.splitlines() if line.startswith("default/driven")]
    (nowhere,) = [line for line in said.out.splitlines() if line.startswith("default/nowhere")]
    assert driven.endswith(f"in lane till, {CHOSEN}")
    assert nowhere.endswith("-")


def test_a_lane_that_hands_over_says_how_the_rest_fares(
    flows: Path, instance: dg.DagsterInstance, capsys: pytest.CaptureFixture[str]
) -> None:
    written(instance, flows)
    rest = {"default/driven": FlowState("old"), "default/nowhere": FlowState("5 s behind")}
    LaneRegistry(instance, "till", "leaving").write("an-older-run", rest)
    assert main(["status", str(flows)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith("in lane till, 5 s behind")]
    assert [line for line in lines if line.endswith(f"in lane till, {CHOSEN}")]


def test_json_has_it_too(
    flows: Path, instance: dg.DagsterInstance, capsys: pytest.CaptureFixture[str]
) -> None:
    written(instance, flows)
    main(["status", str(flows), "--json"])
    answers = json.loads(capsys.readouterr().out)["flows"]
    states = {one["flow"].removeprefix("default/"): one["state"] for one in answers}
    assert states == {"driven": "Running", "retried": "Error", "left": "Error", "nowhere": "-"}
    found = {one["flow"]: one["lane"] for one in answers}
    assert found["default/driven"] == {"text": f"in lane till, {CHOSEN}", "failing": False}
    assert found["default/left"]["failing"]
    assert found["default/nowhere"] is None


def test_what_a_run_has_said_that_is_gone_is_not_repeated(
    flows: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(instance, flows)
    monkeypatch.setattr(drive_states, "STALE_SECONDS", -1.0)
    assert set(drive_states.drive_states(load([flows]).flows)) == {"default/left"}


def test_a_storage_that_cannot_be_read_is_said_and_the_rest_is_shown(
    flows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "nowhere"))
    assert main(["status", str(flows)]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("DAGSTER_HOME cannot be read, lanes are not shown: ")
    assert said.out.splitlines()[-1] == "4 flows: 4 in time, 0 late, 0 not known"


def test_a_storage_that_does_not_answer_is_said_and_the_rest_is_shown(
    flows: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    written(instance, flows)
    never = Event()
    monkeypatch.setattr(drive_states, "states_in", lambda *_: never.wait(30))
    monkeypatch.setattr(commands, "DAGSTER_SECONDS", 0.5)
    assert main(["status", str(flows)]) == 0
    never.set()
    said = capsys.readouterr()
    assert said.err == (
        "DAGSTER_HOME cannot be read, lanes are not shown: no answer for 0.5 seconds\n"
    )
    assert said.out.splitlines()[-1] == "4 flows: 4 in time, 0 late, 0 not known"


def test_a_flow_whose_switch_is_off_is_stopped_unless_somebody_drives_it(
    flows: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What had left its lane is not tried again."""
    written(instance, flows)
    monkeypatch.delenv("DATAFLOW_START")
    switches.remember_default(instance)
    assert states(flows, capsys) == {
        "driven": "Running",
        "retried": "Error",
        "left": "Stopped",
        "nowhere": "Stopped",
    }


def states(flows: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    main(["status", str(flows), "--json"])
    answers = json.loads(capsys.readouterr().out)["flows"]
    return {one["flow"].removeprefix("default/"): one["state"] for one in answers}


@pytest.mark.parametrize("known", [True, False], ids=["the location has run", "not yet"])
def test_a_terminal_need_not_have_the_environment_of_the_code_location(
    flows: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    known: bool,
) -> None:
    """Flows that nobody has switched are on or off by the location's DATAFLOW_START.

    Where nobody knows it, no flow is called stopped.
    """
    written(instance, flows)
    if known:
        switches.remember_default(instance)
    monkeypatch.delenv("DATAFLOW_START")
    expected = {"driven": "Running", "retried": "Error", "left": "Error", "nowhere": "-"}
    assert states(flows, capsys) == expected


def test_a_flow_that_a_run_of_its_own_drives_is_running(
    flows: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATAFLOW_START")
    nowhere = next(flow for flow in load([flows]).flows if flow.name == "nowhere")
    run = dg.DagsterRun(job_name="j", status=dg.DagsterRunStatus.STARTED)
    instance.add_run(run)
    with Runs(instance, nowhere).driving(run.run_id):
        found = drive_states.states_in(instance, [nowhere], {nowhere.id})
    assert found[nowhere.id].name == "Running"
    after = drive_states.states_in(instance, [nowhere], {nowhere.id})
    assert after[nowhere.id].name == "Stopped"


def test_a_flow_whose_own_run_was_killed_is_not_running(
    flows: Path, instance: dg.DagsterInstance
) -> None:
    """Dagster calls the run started until somebody buries it."""
    nowhere = next(flow for flow in load([flows]).flows if flow.name == "nowhere")
    killed = replace(FlowDriver.here(), pid=2**22 + 1)
    run = dg.DagsterRun(job_name="j", status=dg.DagsterRunStatus.STARTED)
    lease = {DRIVES: "true", f"{DRIVER}/{nowhere.id}": value(run.run_id, killed)}
    instance.add_run(run.with_tags(lease))
    found = drive_states.states_in(instance, [nowhere], ())[nowhere.id]
    assert found.name == "Error"
    assert found.text.startswith(f"its run has died: its process (pid {killed.pid} on ")
