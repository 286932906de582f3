"""Lanes whose jobs run in Spark's workers: what never ends, what kills its worker."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from dataflow_assets.connectors.memory import MemoryPartSource
from dataflow_assets.contracts import Slice
from dataflow_assets.lanes import member, turns
from dataflow_assets.runs.request import Patience
from tests.lanes.driving import Driving, Memory

pytestmark = [pytest.mark.alone, pytest.mark.timeout(300)]

SOON = 60.0  # seconds; a worker's first task takes a few on a machine with other work


class Endless(MemoryPartSource):
    """Reads for ever while the flag stands."""

    flag: Path

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        while self.flag.exists():
            sum(range(10_000))
        return super().batches(piece, metadata)


class Deadly(MemoryPartSource):
    """Kills its worker behind the first row, while the flag stands."""

    flag: Path

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        for batch in super().batches(piece, metadata):
            yield batch.slice(0, 1)
            if self.flag.exists():
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch.slice(1)


@pytest.fixture(autouse=True)
def _classes_travel() -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


@pytest.fixture
def flag(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "flag"
    path.touch()
    yield path
    path.unlink(missing_ok=True)


def fed(driven: Driving, others: list[Memory], seconds: float) -> float:
    """Feeds the others for so long; the longest that a row of theirs was on its way."""
    longest, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        for one in others:
            one.produce(2)
        longest = max(longest, driven.until(lambda: all(one.complete for one in others), SOON))
    return longest


def test_a_micro_batch_that_never_ends_is_cut_off_and_then_alone(
    memory: Any, drive: Any, spark: SparkSession, flag: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "GRACE_SECONDS", 1.0)
    others = [memory() for _ in range(2)]
    endless = memory(source=Endless, options={"flag": flag})
    driven: Driving = drive(*[one.flow for one in (*others, endless)], spark=spark)
    fed(driven, others, 1.0)
    monkeypatch.setattr(turns, "JOB_SECONDS", 8.0)  # the first workers have begun
    endless.produce(1)
    fed(driven, others, 16.0)  # it is cut off among the others, and once singly
    assert fed(driven, others, 5.0) < SOON / 3, "now it runs beside them"
    assert not driven.left(endless.flow)
    assert endless.rows() == []
    assert driven.end() < 10
    assert "after the flow was asked to end" in str(driven.left(endless.flow)[0])
    assert all(one.complete for one in others)


def test_one_that_has_ended_after_all_is_among_the_others_again(
    memory: Any, drive: Any, spark: SparkSession, flag: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, endless = memory(), memory(source=Endless, options={"flag": flag})
    driven: Driving = drive(other.flow, endless.flow, spark=spark)
    fed(driven, [other], 1.0)
    monkeypatch.setattr(turns, "JOB_SECONDS", 8.0)
    endless.produce(1)
    fed(driven, [other], 16.0)
    flag.unlink()
    driven.until(lambda: endless.complete, SOON)
    both = [other, endless]
    assert fed(driven, both, 3.0) < SOON / 3
    assert not driven.left(endless.flow)


def test_a_worker_that_dies_takes_nobody_with_it(
    memory: Any, drive: Any, spark: SparkSession, flag: Path
) -> None:
    """All tasks of the joint job die with it; each flow is tried singly."""
    others = [memory() for _ in range(2)]
    deadly = memory(source=Deadly, options={"flag": flag})
    flows = [one.flow for one in (*others, deadly)]
    driven: Driving = drive(*flows, spark=spark, patience=Patience(120, 0.05, 1.0))
    fed(driven, others, 1.0)
    deadly.produce(1)
    fed(driven, others, 5.0)
    assert deadly.rows() == []
    flag.unlink()
    driven.until(lambda: deadly.complete, SOON)
    fed(driven, [*others, deadly], 2.0)
    assert not any(driven.left(flow) for flow in flows)
