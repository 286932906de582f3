"""Triggers as processes of this machine: their environment, their end, and what they may show."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import SecretStr

from dataflow_assets.connectors.memory import MemoryOffsetSource, MemorySliceSink
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.runs.run_result import RunResult
from dataflow_assets.runs.triggers import TriggerHost, run_chain
from dataflow_assets.schedules.trigger import Trigger
from dataflow_assets.secrets import Secrets

RESULT = RunResult("default/orders", "r1", "success", 5, 1, {"0": 7})
SECRETS = Secrets("default", {("default", "shop"): {"password": SecretStr("hunter2222")}})
ABSENT = {"name": "b", "key": "c"}
PASSWORD = {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "shop", "key": "password"}}}


@pytest.fixture
def flow() -> Flow:
    source, sink = MemoryOffsetSource(store="s", topic="t"), MemorySliceSink(store="s", table="x")
    texts = {("default", "settings"): {"level": "gold"}}
    return Flow("default", "orders", source, (Branch(sink),), secrets=SECRETS, config_maps=texts)


def trigger(script: str | None, **more: Any) -> Trigger:
    command = {} if script is None else {"command": ["sh", "-c", script]}
    return Trigger.model_validate({"image": "busybox", **command, **more}, by_alias=True)


def output(flow: Flow, *triggers: Trigger) -> list[str]:
    lines: list[str] = []
    assert run_chain(flow, triggers, RESULT, TriggerHost(lines.append)) is None
    return lines


def failure(flow: Flow, one: Trigger) -> str:
    with pytest.raises(PermanentError) as failed:
        output(flow, one)
    return str(failed.value)


def test_a_trigger_is_told_of_its_run(flow: Flow) -> None:
    (line,) = output(flow, trigger("env | grep ^DATAFLOW_RUN_ | sort | tr '\n' ' '"))
    assert line == (
        "trigger-0: DATAFLOW_RUN_ERROR= DATAFLOW_RUN_FLOW=default/orders DATAFLOW_RUN_ID=r1 "
        'DATAFLOW_RUN_POSITIONS={"0": 7} DATAFLOW_RUN_REJECTED=1 DATAFLOW_RUN_ROWS=5 '
        "DATAFLOW_RUN_STATUS=success "
    )


def test_values_are_those_of_the_manifest_its_config_maps_and_other_variables(flow: Flow) -> None:
    env = [
        {"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "level"}}},
        {"name": "TEXT", "value": "$(LEVEL) $$(LEVEL) $(NONE)"},
        {
            "name": "NO",
            "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y", "optional": True}},
        },
    ]
    script = trigger('echo "$0|$TEXT|${NO-unset}"', args=["$(LEVEL)"], env=env)
    assert output(flow, script) == ["trigger-0: gold|gold $(LEVEL) $(NONE)|unset"]


def test_a_secret_reaches_the_process_and_nobody_else(flow: Flow) -> None:
    url = {"name": "URL", "value": "db://$(PW)@host"}
    lines = output(flow, trigger("echo ${#PW} $PW; echo $URL", env=[PASSWORD, url]))
    assert lines == ["trigger-0: 10 ***", "trigger-0: ***"]


@pytest.mark.parametrize("named", ["PW", "URL"])
def test_a_secret_does_not_get_into_the_list_of_processes(flow: Flow, named: str) -> None:
    env = [PASSWORD, {"name": "URL", "value": "db://$(PW)@host"}]
    problem = failure(flow, trigger("true", args=[f"--with=$({named})"], env=env))
    assert f"$({named}) would show a Secret in the list of processes" in problem
    assert "hunter" not in problem


def test_secrets_of_other_flows_stay_with_this_process(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_SECRET__DEFAULT__SHOP__PASSWORD", "hunter2222")
    assert output(flow, trigger("env | grep -c ^DATAFLOW_SECRET__ || true")) == ["trigger-0: 0"]


@pytest.mark.parametrize(
    ("one", "problem"),
    [
        (trigger(None), "has no command: outside a cluster nothing runs the image busybox"),
        (trigger(None, command=["no-such-program"]), "no-such-program cannot be started: No such"),
        (trigger("echo hunter2222; exit 4"), "ended with exit code 4\n***"),
        (trigger("kill -9 $$$$"), "ended with signal SIGKILL"),
        (
            trigger("", env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]),
            "variable A is a field of a pod, and this process is in none",
        ),
        (
            trigger("", env=[{"name": "A", "valueFrom": {"configMapKeyRef": ABSENT}}]),
            "variable A: key c not found in ConfigMap default/b",
        ),
        (
            trigger(
                "", env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "b", "key": "c"}}}]
            ),
            "variable A: failed to get secret default/b (key c)",
        ),
        (
            Trigger(job="refresh"),
            "trigger trigger-0 of flow default/orders is one of Dagster's, which runs it",
        ),
    ],
)
def test_a_trigger_that_does_not_succeed_says_why(flow: Flow, one: Trigger, problem: str) -> None:
    assert problem in failure(flow, one)


def test_the_chain_stops_at_the_first_failure(flow: Flow, tmp_path: Path) -> None:
    after = tmp_path / "after"
    with pytest.raises(PermanentError, match="trigger first of flow"):
        output(flow, trigger("exit 1", name="first"), trigger(f"touch {after}"))
    assert not after.exists()


def _is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_trigger_that_is_stopped_is_gone_with_its_children(flow: Flow, tmp_path: Path) -> None:
    children = tmp_path / "children"
    script = f"sleep 600 & echo $! > {children}; echo $$$$ >> {children}; wait"
    lines: list[str] = []

    def stop() -> str | None:
        done = children.exists() and len(children.read_text().split()) == 2
        return "asked to stop" if done else None

    host = TriggerHost(lines.append, stop)
    second = trigger(f"touch {tmp_path}/second")
    assert run_chain(flow, [trigger(script), second], RESULT, host) == "asked to stop"
    assert all(_is_gone(int(pid)) for pid in children.read_text().split())
    assert not (tmp_path / "second").exists()


def test_an_interrupt_ends_the_process_too(flow: Flow, tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def interrupt() -> str | None:
        if pid.exists() and pid.read_text().strip():
            raise KeyboardInterrupt
        return None

    with pytest.raises(KeyboardInterrupt):
        run_chain(
            flow,
            [trigger(f"echo $$$$ > {pid}; exec sleep 600")],
            RESULT,
            TriggerHost(lambda _: None, interrupt),
        )
    assert _is_gone(int(pid.read_text()))


def test_what_a_trigger_leaves_behind_holds_up_nobody(flow: Flow) -> None:
    (child,) = output(flow, trigger("sleep 600 & echo $!"))
    pid = int(child.partition(": ")[2])
    deadline = time.monotonic() + 60
    while not _is_gone(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _is_gone(pid)


def test_a_trigger_does_not_outlive_a_killed_run(flow: Flow, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    run = os.fork()
    if run == 0:
        try:
            run_chain(
                replace(flow),
                [trigger(f"echo $$$$ > {pid}; exec sleep 600")],
                RESULT,
                TriggerHost(lambda _: None),
            )
        finally:
            os._exit(0)
    deadline = time.monotonic() + 60
    while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(run, signal.SIGKILL)
    os.waitpid(run, 0)
    while not _is_gone(int(pid.read_text())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _is_gone(int(pid.read_text()))
