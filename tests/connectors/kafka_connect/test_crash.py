"""Driver and host are killed at each step; what the connector delivers arrives once, in order."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.connectors.kafka_connect.driver import Flow, stream
from tests.contract.files_drivers import FilesOnDisk
from tests.drained import drain_apart, follow_apart

pytestmark = [pytest.mark.heavy, pytest.mark.crash]

EACH = 100
IN_HOST = ("connect.sealing", "connect.sealed", "connect.told")
IN_DRIVER = ("connect.read", *FilesOnDisk.failpoints)
SOME = ("connect.read", "files.committed")


def write(flow: Flow, low: int) -> int:
    with (flow.folder / "in.txt").open("a") as file:
        file.writelines(f"line {number}\n" for number in range(low, low + EACH))
    return low + EACH


def expect(flow: Flow, rows: int) -> None:
    assert [row["record"] for row in flow.rows] == [f"line {number}" for number in range(rows)]
    assert {row["topic"] for row in flow.rows} == {"lines"}


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    return stream(tmp_path)


def test_the_process_of_the_connector_is_killed(flow: Flow) -> None:
    """Without progress the run ends with an error; else it starts the process again."""
    rows = 0
    for failpoint in IN_HOST:
        rows = write(flow, rows)
        ended = drain_apart(flow.manifest, failpoint=f"{failpoint}:kill")
        assert ended == 1 if failpoint == "connect.sealing" else ended in {0, 1}
    rows = write(flow, rows)
    assert follow_apart(flow.manifest, rows) == 0
    expect(flow, rows)


@pytest.mark.parametrize(
    "failpoints", [SOME, pytest.param(IN_DRIVER, marks=pytest.mark.full)], ids=["some", "all"]
)
def test_the_driver_is_killed(failpoints: Sequence[str], flow: Flow) -> None:
    """The connector's process ends with the driver."""
    rows = 0
    for failpoint in failpoints:
        rows = write(flow, rows)
        ended = drain_apart(flow.manifest, failpoint=f"{failpoint}:kill")
        assert ended == -signal.SIGKILL, failpoint
    rows = write(flow, rows)
    assert follow_apart(flow.manifest, rows) == 0
    expect(flow, rows)
