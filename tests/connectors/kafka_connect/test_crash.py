"""Driver and host are killed at each step; what the connector delivers arrives once, in order."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.connectors.kafka_connect.driver import Flow, stream
from tests.contract.files_drivers import FilesOnDisk
from tests.drained import drain_apart

pytestmark = [pytest.mark.heavy, pytest.mark.crash]

ROWS = 1_000
IN_HOST = [
    (name, nth) for name in ("connect.sealing", "connect.sealed", "connect.told") for nth in (1, 3)
]
IN_DRIVER = ["connect.read", *FilesOnDisk.failpoints]
SOME = {"connect.read", "files.staged", "files.committed", "drain.finished"}


def write(flow: Flow, low: int, high: int) -> None:
    with (flow.folder / "in.txt").open("a") as file:
        file.writelines(f"line {number}\n" for number in range(low, high))


def expect(flow: Flow, rows: int) -> None:
    assert [row["record"] for row in flow.rows] == [f"line {number}" for number in range(rows)]
    assert {row["topic"] for row in flow.rows} == {"lines"}


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    flow = stream(tmp_path, maxRecordsPerBatch=4_000)
    write(flow, 0, ROWS)
    return flow


@pytest.mark.parametrize(("failpoint", "nth"), IN_HOST)
def test_the_process_of_the_connector_is_killed(failpoint: str, nth: int, flow: Flow) -> None:
    """Without progress the run ends with an error; else it starts the process again."""
    ended = drain_apart(flow.manifest, failpoint=f"{failpoint}:kill:{nth}")
    assert ended == 1 if nth == 1 and failpoint == "connect.sealing" else ended in {0, 1}
    write(flow, ROWS, ROWS + 100)
    assert drain_apart(flow.manifest) == 0
    expect(flow, ROWS + 100)


@pytest.mark.parametrize(
    "failpoint",
    [f if f in SOME else pytest.param(f, marks=pytest.mark.full) for f in IN_DRIVER],
)
def test_the_driver_is_killed(failpoint: str, flow: Flow) -> None:
    """The connector's process ends with the driver."""
    assert drain_apart(flow.manifest, failpoint=f"{failpoint}:kill:2") == -signal.SIGKILL
    write(flow, ROWS, ROWS + 100)
    assert drain_apart(flow.manifest) == 0
    expect(flow, ROWS + 100)
