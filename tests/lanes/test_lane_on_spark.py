"""Lanes whose jobs run in Spark's workers: what never ends, what kills its worker."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from dataflow_assets.connectors.memory import MemoryPartSource
from dataflow_assets.contracts import Slice
from dataflow_assets.lanes import joint_jobs, member, turns
from dataflow_assets.lanes.events import Failing
from dataflow_assets.lanes.joint_jobs import JointJobs
from dataflow_assets.lanes.lane import END_SECONDS
from dataflow_assets.lanes.single_jobs import SingleJobs
from dataflow_assets.micro_batch import job
from dataflow_assets.micro_batch.tasks import CutOff, JobDied, within
from dataflow_assets.runs.request import Patience
from tests.lanes.driving import Driving, Memory

pytestmark = [pytest.mark.alone, pytest.mark.timeout(300)]

LIMIT = 3.0  # seconds of a job that never ends
SOON = 120.0  # seconds; a first task takes a few, on a machine with other work many


class Endless(MemoryPartSource):
    """Reads for ever while the flag stands."""

    flag: Path

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        while self.flag.exists():
            sum(range(10_000))
        return super().batches(piece, metadata)


class Deadly(MemoryPartSource):
    """Kills its worker behind the first row, while the flag stands; it says there which one."""

    flag: Path

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        for batch in super().batches(piece, metadata):
            yield batch.slice(0, 1)
            if self.flag.exists():
                with self.flag.open("a") as dead:
                    dead.write(f"{os.getpid()}\n")
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


@dataclass(frozen=True)
class SparkJob:
    """Who has asked for it, and the flows that it reads."""

    thread: str
    flows: frozenset[str]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[SparkJob]:
    """Every Spark job, in the order in which they begin."""
    begun: list[SparkJob] = []
    read = job.read

    def noted(spark: Any, asked: Any, deal: Any = None) -> None:
        flows = frozenset(reading.work.source.store for reading in asked)
        begun.append(SparkJob(threading.current_thread().name, flows))
        read(spark, asked, deal)

    monkeypatch.setattr(job, "read", noted)
    return begun


def of(jobs: list[SparkJob], one: Memory) -> list[SparkJob]:
    return [each for each in jobs if one.name in each.flows]


def own(one: Memory) -> SparkJob:
    """One that runs beside those of the lane: the flow's own thread has asked for it."""
    return SparkJob(f"flow {one.flow.id}", frozenset({one.name}))


def failures(driven: Driving, one: Memory) -> list[Any]:
    return [e.error for e in driven.events if isinstance(e, Failing) and e.flow.id == one.flow.id]


def together(drive: Any, flows: list[Memory], patch: pytest.MonkeyPatch, **more: Any) -> Driving:
    """Drives flows all of which have something to read: their first job is one of all of them."""
    patch.setattr(joint_jobs, "GATHER_SECONDS", 5.0)
    for one in flows:
        one.produce(2)
    return drive(*[one.flow for one in flows], **more)  # type: ignore[no-any-return]


def impatient(jobs: list[SparkJob], one: Memory, patch: pytest.MonkeyPatch) -> None:
    """Jobs of the lane that read this flow have LIMIT seconds; the others have what they have.

    A cut-off ends the workers as well, and a job that begins new ones may take as long as that.
    """

    def limited(seconds: float) -> Callable[[], str]:
        thread = threading.current_thread().name
        soon, late = within(LIMIT), within(seconds)

        def over() -> str:
            last = next((each for each in reversed(jobs) if each.thread == thread), None)
            return soon() if last and one.name in last.flows else late()

        return over

    patch.setattr(turns, "within", limited)


def warm(drive: Any, others: list[Memory], spark: SparkSession) -> None:
    """The first workers begin."""
    driven: Driving = drive(*[one.flow for one in others], spark=spark)
    fed(driven, others, 1.0)
    driven.end()


def fed(driven: Driving, others: list[Memory], seconds: float) -> float:
    """Feeds the others for so long; the longest that a row of theirs was on its way."""
    longest, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        for one in others:
            one.produce(2)
        longest = max(longest, driven.until(lambda: all(one.complete for one in others), SOON))
    return longest


def test_a_micro_batch_that_never_ends_is_cut_off_and_then_alone(
    memory: Any,
    drive: Any,
    spark: SparkSession,
    flag: Path,
    jobs: list[SparkJob],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member, "GRACE_SECONDS", 1.0)
    others = [memory() for _ in range(2)]
    endless = memory(source=Endless, options={"flag": flag})
    warm(drive, others, spark)
    impatient(jobs, endless, monkeypatch)
    driven = together(drive, [*others, endless], monkeypatch, spark=spark)
    # among the others, singly, and then alone
    driven.until(lambda: own(endless) in jobs, 2 * LIMIT + SOON)
    first, second, third = of(jobs, endless)
    assert first == SparkJob(JointJobs.name, frozenset(one.name for one in (*others, endless)))
    assert second == SparkJob(SingleJobs.name, frozenset({endless.name}))
    assert third == own(endless)
    among_others, singly = failures(driven, endless)
    reason = f"it did not end within {LIMIT:g} seconds"
    assert isinstance(among_others, CutOff)
    assert str(among_others) == reason
    cut_off = f"flow {endless.flow.id}: a micro-batch was cut off in its lane because {reason}"
    assert str(singly).startswith(cut_off)
    # a lane's job would be cut off meanwhile, again and again
    fed(driven, others, LIMIT + 2)
    assert of(jobs, endless) == [first, second, third]
    assert failures(driven, endless) == [among_others, singly]
    assert endless.rows() == []
    assert not any(driven.left(one.flow) for one in (*others, endless))
    assert driven.end() < END_SECONDS / 2
    assert "after the flow was asked to end" in str(driven.left(endless.flow)[0])
    assert all(one.complete for one in others)


def test_one_that_has_ended_after_all_is_among_the_others_again(
    memory: Any,
    drive: Any,
    spark: SparkSession,
    flag: Path,
    jobs: list[SparkJob],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other, endless = memory(), memory(source=Endless, options={"flag": flag})
    warm(drive, [other], spark)
    impatient(jobs, endless, monkeypatch)
    driven = together(drive, [other, endless], monkeypatch, spark=spark)
    driven.until(lambda: own(endless) in jobs, 2 * LIMIT + SOON)
    flag.unlink()
    driven.until(lambda: endless.complete, SOON)
    del jobs[:]
    both = SparkJob(JointJobs.name, frozenset({other.name, endless.name}))
    end = time.monotonic() + SOON
    while both not in jobs:
        assert time.monotonic() < end, jobs
        fed(driven, [other, endless], 0.1)
    assert not driven.left(endless.flow)


def test_a_worker_that_dies_takes_nobody_with_it(
    memory: Any,
    drive: Any,
    spark: SparkSession,
    flag: Path,
    jobs: list[SparkJob],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All tasks of the joint job die with it; each flow is tried singly."""
    others = [memory() for _ in range(2)]
    deadly = memory(source=Deadly, options={"flag": flag})
    flows = [*others, deadly]
    warm(drive, others, spark)
    del jobs[:]
    patience = Patience(120, 0.05, 1.0)
    driven = together(drive, flows, monkeypatch, spark=spark, patience=patience)
    driven.until(lambda: all(len(of(jobs, one)) > 1 for one in flows), SOON)
    first = {one.name: of(jobs, one)[:2] for one in flows}
    joint = SparkJob(JointJobs.name, frozenset(first))
    assert first == {name: [joint, SparkJob(SingleJobs.name, frozenset({name}))] for name in first}
    assert all(isinstance(failures(driven, one)[0], JobDied) for one in flows)
    fed(driven, others, 3.0)
    driven.until(lambda: len(of(jobs, deadly)) > 3, SOON)
    assert set(of(jobs, deadly)[2:]) == {own(deadly)}
    dead = [int(number) for number in flag.read_text().split()]
    assert len({*dead}) == len(dead) >= 3, "one jointly, one singly, one alone"
    assert not any(map(psutil.pid_exists, dead))
    assert deadly.rows() == []
    assert [len(failures(driven, one)) for one in others] == [1, 1], "they died once with it"
    flag.unlink()
    driven.until(lambda: deadly.complete, SOON)
    fed(driven, flows, 2.0)
    assert not any(driven.left(one.flow) for one in flows)
