"""Dagster as a user starts it: the process of a lane's run is killed, its successor goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import dagster as dg
import psutil
import pytest

import devservers
from dataflow_assets.assets.drivers import FlowDriver
from dataflow_assets.assets.lane_runs import LANE
from dataflow_assets.assets.leases import DRIVER
from dataflow_assets.spark import system
from devservers.demo.dagster_dev import Dagster
from tests.e2e.fleet import Fleet, Growing, Topic
from tests.e2e.gate import Gate

pytestmark = [pytest.mark.crash, pytest.mark.e2e, pytest.mark.timeout(560)]

PATIENCE = 240.0  # seconds: Dagster takes half of a minute to begin a run, on a machine with work


@pytest.fixture
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    folder = tmp_path / "flows"
    folder.mkdir()
    fleet = Fleet(folder, request, [(Topic, "postgresql"), (Growing, "kafka")])
    yield fleet
    fleet.rest()


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Micro-batches whose tasks have written, and that are not committed."""
    gate = Gate("drain.passed")
    yield gate
    gate.remove()


@pytest.fixture
def dagster(
    fleet: Fleet, gate: Gate, spark_server: devservers.SparkConnect, tmp_path: Path
) -> Iterator[Dagster]:
    (port,) = system.free_ports(1)
    variables = {
        "DATAFLOW_FLOWS": str(fleet.folder),
        "DATAFLOW_SPARK": spark_server.remote,
        "DATAFLOW_START": "1",
        **gate.environment,
    }
    with Dagster(tmp_path / "dagster", port=port, variables=variables) as server:
        yield server


def test_a_run_that_is_killed_while_its_flows_commit_has_a_successor(
    fleet: Fleet, gate: Gate, dagster: Dagster
) -> None:
    _until(fleet.grown(), dagster)
    gate.shut()
    _until(lambda: gate.held == len(fleet.cases), dagster)
    assert _holder(fleet) == _runs(dagster)[0].run_id[:12]
    process = _process(_runs(dagster)[0])
    assert "--multiprocessing-fork" in process.cmdline(), "a process of the run's own"
    process.kill()
    gate.open()
    _until(fleet.grown(), dagster)
    first, second = _runs(dagster)
    assert _holder(fleet) == second.run_id[:12]
    assert first.status == dg.DagsterRunStatus.FAILURE
    assert second.status == dg.DagsterRunStatus.STARTED
    assert _origin(first.tags) == _origin(second.tags) == ("ingest", "shared")
    fleet.rest()
    _until(lambda: not fleet.wrong(), dagster)
    dagster.stop()
    assert fleet.wrong() == {}


def _holder(fleet: Fleet) -> str:
    """The run that has the epoch of every flow."""
    (holder,) = {one.run_id for one in fleet.checkpoints().values()}
    return holder


def _process(run: dg.DagsterRun) -> psutil.Process:
    """The one that drives the lane, by the run's lease."""
    driver = FlowDriver.parse(run.tags[f"{DRIVER}/lane:shared"].partition(" ")[2])
    assert driver is not None
    return psutil.Process(driver.pid)


def _origin(tags: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The sensor that has started a run, and its lane."""
    return tags.get("dagster/sensor_name"), tags.get(LANE)


def _runs(dagster: Dagster) -> list[dg.DagsterRun]:
    """The oldest first."""
    with dg.DagsterInstance.from_config(str(dagster.folder)) as instance:
        return list(reversed(instance.get_runs(dg.RunsFilter(job_name="ingest"))))


def _until(there: Callable[[], bool], dagster: Dagster) -> None:
    deadline = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < deadline, dagster.log.read_text()[-6_000:]
        time.sleep(1.0)
