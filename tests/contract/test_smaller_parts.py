"""Parts that were recorded before a failure are read in smaller ones, once the limit is lower."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from dataflow_assets.errors import TransientError
from dataflow_assets.micro_batch import job
from dataflow_assets.micro_batch.job import BatchOutcome, Planned
from tests.contract import SINKS
from tests.contract.conftest import Case, numbered

IN_TASKS = ("memory.write", "postgresql.before-commit", "clickhouse.write", "kafka.before-commit",
            "iceberg.staged", "files.staged", "clickhouse.before-insert")  # fmt: skip
FAILING = [
    (sink, name)
    for sink, driver in sorted(SINKS.items())
    for name in driver.failpoints
    if name in IN_TASKS
]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many parts each pass has read."""
    found: list[int] = []
    run = job.run

    def spy(spark: Any, planned: Planned) -> BatchOutcome:
        found.append(sum(not piece.empty for piece in planned.work.span.slices))
        return run(spark, planned)

    monkeypatch.setattr(job, "run", spy)
    return found


@pytest.mark.crash
@pytest.mark.parametrize(("sink", "failpoint"), FAILING, indirect=["sink"])
def test_each_row_once(
    parts_case: Case, failpoint: str, read: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts_case.limit, parts_case.patience = 30, 0
    parts_case.source.seed(numbered(1, 50))
    monkeypatch.setenv("DATAFLOW_FAILPOINT", f"{failpoint}:raise:2")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
    with pytest.raises(TransientError):
        parts_case.drain()
    begun = len(parts_case.sink.rows())
    parts_case.limit, parts_case.patience = 5, 20
    parts_case.drain()
    assert read[0] == 3
    if failpoint == "clickhouse.before-insert":
        assert read[1] >= 1  # its INSERT may stand: the part is read as it was recorded
    else:
        assert read[1] == (30 - begun) // 5
    parts_case.expect(numbered(1, 50))
    assert parts_case.totals().rows == 49
