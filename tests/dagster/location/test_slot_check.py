"""The asset check `slot`: how much log the source's server keeps for a flow that follows tables."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from dataflow_assets.assets import graph, metadata
from dataflow_assets.assets.runs import job_name
from dataflow_assets.location.sensors.lag import lag_sensor
from tests.connectors.postgresql.cdc.followed import Followed
from tests.dagster.flows import location

NOISE = "CREATE TABLE noise AS SELECT repeat('x', 1000) FROM generate_series(1, 5000)"


def _run(followed: Followed, instance: dg.DagsterInstance) -> dg.AssetCheckEvaluation:
    job = location([followed.flow], followed.engine).resolve_job_def(job_name(followed.flow))
    result = job.execute_in_process(instance=instance)
    assert result.success
    found = {one.check_name: one for one in result.get_asset_check_evaluations()}
    return found["slot"]


def _look(followed: Followed, instance: dg.DagsterInstance, cursor: str | None) -> Any:
    sensor = lag_sensor(graph.build([followed.flow]))
    return sensor(dg.build_sensor_context(instance, cursor=cursor))


def test_much_log_that_a_slot_keeps_is_warned_about(
    followed: Followed, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a run of the flow, and by the sensor `lag` while no run drives the flow."""
    known = _run(followed, instance)
    assert known.passed
    assert known.severity == dg.AssetCheckSeverity.WARN
    first = _look(followed, instance, None)
    (passed,) = [e for e in first.asset_events[1:] if e.check_name == "slot"]
    assert passed.passed
    monkeypatch.setattr(metadata, "HELD_BYTES", passed.metadata["held_bytes"].value + 2_000_000)
    followed.run(NOISE)
    later = _look(followed, instance, first.cursor)
    (failed,) = [e for e in later.asset_events[1:] if e.check_name == "slot"]
    assert not failed.passed
    assert failed.metadata["held_bytes"].value > metadata.HELD_BYTES
    monkeypatch.setattr(metadata, "HELD_BYTES", 0)
    assert not _run(followed, instance).passed
