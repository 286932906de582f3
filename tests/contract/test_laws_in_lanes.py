"""A few of the laws once more, where the flow is a member of a lane."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import closing

import pytest

from dataflow_assets.contracts import Run
from dataflow_assets.lanes import joint_jobs, lane, turns
from dataflow_assets.lanes.events import Left
from dataflow_assets.lanes.lane import Lane
from dataflow_assets.runs.request import Patience, Report, Request
from tests.contract.conftest import Case, numbered


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "MOMENT", 0.05)
    monkeypatch.setattr(joint_jobs, "LEAST_SECONDS", 0.1)
    monkeypatch.setattr(joint_jobs, "LEAST_SHARE", 0.0)
    monkeypatch.setattr(turns, "STEP_SECONDS", 0.1)


def driven(case: Case) -> list[Report]:
    """What a lane reports of the flow until it has read all there is."""
    order = Request(run=Run(), patience=Patience(case.patience, 0.01, 0.05))
    flow, reports = case.flow(), list[Report]()
    for event in Lane(lambda: case.engine, order).drive(lambda: [flow], _drained(case)):
        if isinstance(event, Left):
            raise event.error
        reports += [event] if isinstance(event, Report) else []
    return reports


def _drained(case: Case) -> Callable[[], str | None]:
    """Nothing is left to read for a second: an attempt that has failed was made up for."""
    flow, since = case.flow(), [time.monotonic()]
    (branch,) = flow.branches

    def stop() -> str | None:
        found = branch.sink.peek(flow.target(branch))
        with closing(flow.source.open(flow.id)) as session:
            if found is None or not found.positions or session.lag(found.positions).records:
                since[0] = time.monotonic()
        return "all is read" if time.monotonic() - since[0] > 1.0 else None

    return stop


def law(case: Case) -> None:
    case.source.seed(numbered(1, 40))
    reports = driven(case)
    case.expect(numbered(1, 40))
    assert sum(report.delta.rows for report in reports) == 39
    assert reports[-1].last
    case.source.seed(numbered(40, 55))
    driven(case)
    case.expect(numbered(1, 55))
    assert case.totals().rows == 54


SINKS = [
    "memory-span",
    "postgresql",
    *(pytest.param(name, marks=pytest.mark.full) for name in ("clickhouse", "iceberg-upsert")),
    pytest.param("kafka", marks=pytest.mark.full),
]


@pytest.mark.parametrize("sink", SINKS, indirect=True)
def test_everything_is_stored_once_and_it_resumes(sink_case: Case) -> None:
    law(sink_case)


@pytest.mark.parametrize("sink", ["memory-slice", "postgresql"], indirect=True)
def test_parts_are_stored_once_and_it_resumes(parts_case: Case) -> None:
    law(parts_case)


@pytest.mark.parametrize("sink", ["memory-slice", "postgresql"], indirect=True)
@pytest.mark.parametrize("source", ["kafka"], indirect=True)
def test_topics_are_stored_once_and_it_resumes(case: Case) -> None:
    law(case)


@pytest.mark.parametrize("source", ["kafka", "memory-offsets", "memory-parts"], indirect=True)
@pytest.mark.parametrize("sink", ["memory-slice"], indirect=True)
@pytest.mark.parametrize(
    "failpoint", ["drain.begun", "memory.before-commit", "memory.committed", "memory.finish"]
)
def test_a_failure_neither_loses_nor_doubles(
    case: Case, failpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.source.seed(numbered(1, 50))
    monkeypatch.setenv("DATAFLOW_FAILPOINT", f"{failpoint}:raise")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
    reports = driven(case)
    case.expect(numbered(1, 50))
    assert case.totals().rows == 49
    assert sum(report.delta.rows for report in reports) == 49
