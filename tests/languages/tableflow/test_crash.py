"""The process is killed at each step of a commit; each record is in the table once."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import pytest

import devservers
from dataflow_assets.sdk.sql_table.rejected import entries_of
from tests.drained import drain_apart
from tests.languages.tableflow.files import Tableflow

STEPS = (
    "iceberg.begin",
    "iceberg.staged",
    "iceberg.rejected-committed",
    "iceberg.before-commit",
    "iceberg.bucket-committed",
    "iceberg.after-commit",
    "drain.finished",
)


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("bucket", "times"),
    [("s3", (1,)), *(pytest.param(one, (1, 2), marks=pytest.mark.full) for one in ("disk", "s3"))],
    indirect=["bucket"],
)
def test_killed_at_every_step_in_turn(
    file: Tableflow, times: Sequence[int], kafka: devservers.Kafka
) -> None:
    """Each run is the recovery of the one before; one record of each turn is rejected."""
    file.write()
    sent = 0
    for turn, step in enumerate(STEPS):
        file.produce(kafka, [{"id": sent + n, "name": f"n{sent + n}"} for n in range(40)])
        file.produce(kafka, [b"bad %d" % turn])
        sent += 40
        for nth in times:
            killed = drain_apart(str(file.path), failpoint=f"{step}:kill:{nth}")
            assert killed == -signal.SIGKILL or (nth, killed) == (2, 0), step
    assert drain_apart(str(file.path)) == 0
    rows = sorted(file.rows(), key=lambda row: row["id"])
    assert rows == [{"id": n, "name": f"n{n}"} for n in range(sent)]
    rejected = file.rows(f"{file.name}_rejected")
    assert {one.body for one in entries_of(rejected, None, 99)} == {
        b"bad %d" % turn for turn in range(len(STEPS))
    }
