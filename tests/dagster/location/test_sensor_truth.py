"""What sensors see when the sink's checkpoint is not the mirrored one, or a partition is empty."""

import time
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from dataflow_assets.assets import graph
from dataflow_assets.connectors.memory import MemorySliceSink
from dataflow_assets.contracts import Checkpoint, Run, Target
from dataflow_assets.errors import TransientError
from dataflow_assets.location.sensors.checkpoints import RETRY_SECONDS, TRUTH_SECONDS
from dataflow_assets.location.sensors.lag import lag_sensor
from dataflow_assets.runs.reset import reset
from tests.dagster.switch import Switch


@pytest.fixture
def idle(switch: Switch) -> Switch:
    """A flow that has read its three records, by its mirror and by its sink."""
    switch.produce(3)
    switch.stand(p0=3)
    assert "nothing new" in switch.reason()
    return switch


def test_a_reset_under_a_sensor_becomes_a_run(
    idle: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    reset(idle.flow, Run())
    _pass(monkeypatch, TRUTH_SECONDS)
    assert isinstance(idle.tick(), dg.RunRequest)
    assert isinstance(idle.tick(), dg.RunRequest)  # until a run has come of it
    idle.stand(p0=3)
    assert "nothing new" in idle.reason()


def test_a_reset_shows_in_the_lag_and_fails_its_check(
    idle: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _lag(idle)
    assert [event.metadata["lag_records"].value for event in first.asset_events[:1]] == [0]
    assert first.asset_events[1].passed
    reset(idle.flow, Run())
    _pass(monkeypatch, TRUTH_SECONDS)
    observation, check = _lag(idle, first.cursor).asset_events
    assert observation.metadata["lag_records"].value == 3
    assert not check.passed
    assert "has no checkpoint" in check.metadata["checkpoint"].value


def test_a_reset_of_an_empty_source_fails_the_check_too(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch.stand()
    cursor = _lag(switch).cursor
    reset(switch.flow, Run())
    _pass(monkeypatch, TRUTH_SECONDS)
    observation, check = _lag(switch, cursor).asset_events
    assert (observation.metadata["lag_records"].value, check.passed) == (0, False)


def test_a_restored_sink_becomes_a_run(idle: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    idle.store_checkpoint(p0=1)
    assert "nothing new" in idle.reason()
    _pass(monkeypatch, TRUTH_SECONDS)
    assert isinstance(idle.tick(), dg.RunRequest)
    assert _lag(idle).asset_events[0].metadata["lag_records"].value == 2


def test_a_sensor_that_starts_asks_the_sink(switch: Switch) -> None:
    switch.produce(3)
    switch.stand(p0=3)
    switch.store_checkpoint(p0=2)
    assert isinstance(switch.tick(), dg.RunRequest)


def test_the_sink_is_asked_every_few_minutes_and_not_more_often(
    idle: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def peek(*_: object) -> Checkpoint:
        asked.append(time.monotonic())
        return Checkpoint(1, {"0": 3, "1": 0})

    monkeypatch.setattr(MemorySliceSink, "peek", peek)
    _pass(monkeypatch, TRUTH_SECONDS)
    for _ in range(3):
        assert "nothing new" in idle.reason()
        _lag(idle)
    assert len(asked) == 1


def test_a_sink_that_cannot_be_asked_is_asked_again_soon(
    idle: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the mirror counts, and the lag goes on being observed."""

    def down(_: object, __: Target) -> Checkpoint:
        raise TransientError("no route to host")

    with monkeypatch.context() as broken:
        broken.setattr(MemorySliceSink, "peek", down)
        _pass(broken, TRUTH_SECONDS)
        assert "nothing new" in idle.reason()
        idle.produce(2)
        assert _lag(idle).asset_events[0].metadata["lag_records"].value == 2
    idle.store_checkpoint(p0=1)
    _pass(monkeypatch, TRUTH_SECONDS + RETRY_SECONDS)
    assert _lag(idle).asset_events[0].metadata["lag_records"].value == 4


def test_an_empty_new_partition_is_no_news(switch: Switch) -> None:
    switch.stand()
    source = switch.flow.source.model_copy(update={"partitions": 3})
    switch.flow = replace(switch.flow, source=source, hash="other")
    assert "nothing new" in switch.reason()
    switch.store.produce("orders", 2, [b"{}"])
    assert isinstance(switch.tick(), dg.RunRequest)


def _lag(switch: Switch, cursor: str | None = None) -> Any:
    sensor = lag_sensor(graph.build([switch.flow]))
    return sensor(dg.build_sensor_context(switch.instance, cursor=cursor))


def _pass(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = time.monotonic() + seconds
    monkeypatch.setattr(time, "monotonic", lambda: now)
