"""Two drivers of one flow: the newer one goes on, and nothing of the older one counts twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dataflow_assets import failpoints
from dataflow_assets.contracts import Checkpoint, Run
from dataflow_assets.errors import TakenOver, TransientError
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Report, Request, Start
from tests.contract import SINKS
from tests.contract.conftest import Case, numbered
from tests.contract.test_recreated import Draining, Held, held


@pytest.mark.shared
def test_a_second_driver_fences_the_first(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of the first has read its records when the second one begins, and commits last."""
    case.limit = 5
    case.source.seed(numbered(1, 31))
    _expect_taken_over(
        case, case.reports(), held(monkeypatch, tmp_path, case.sink.in_task), monkeypatch
    )
    assert case.totals().rows == 30


FINISHING = [
    (label, failpoint)
    for label, driver in sorted(SINKS.items())
    for failpoint in driver.failpoints[driver.failpoints.index("drain.passed") : -1]
]
EMPTYING = [(label, driver.emptying) for label, driver in sorted(SINKS.items()) if driver.emptying]


@pytest.mark.parametrize(("sink", "failpoint"), FINISHING, indirect=["sink"])
def test_a_second_driver_fences_the_first_in_its_commit(
    failpoint: str, sink_case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is past its tasks, and goes on when all is stored by the second."""
    case = sink_case
    case.limit = 5
    case.source.seed(numbered(1, 31))
    reports = case.reports()
    next(reports)
    _expect_taken_over(case, reports, held(monkeypatch, tmp_path, failpoint), monkeypatch)
    assert case.totals().rows == 30


@pytest.mark.parametrize(("sink", "failpoint"), EMPTYING, indirect=["sink"])
def test_a_second_driver_fences_the_first_while_that_empties_the_table(
    failpoint: str, sink_case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the second one has stored since stays."""
    case = sink_case
    case.limit = 5
    case.source.seed(numbered(1, 31))
    case.drain()
    reports = case.reports(Start("earliest", table="truncate"))
    _expect_taken_over(case, reports, held(monkeypatch, tmp_path, failpoint), monkeypatch)
    case.drain()
    case.expect(numbered(1, 31))


def _expect_taken_over(
    case: Case, reports: Iterator[Report], holding: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holding as wait:
        failpoints.arm(failpoints.from_environment())
        first = Draining(reports)
        wait(first)
        monkeypatch.delenv("DATAFLOW_FAILPOINT")
        case.drain()
        case.expect(numbered(1, 31))
        assert first.is_alive()
    error = first.ended()
    assert isinstance(error, TakenOver), error
    assert "taken over by run" in str(error)
    case.expect(numbered(1, 31))


def test_an_attempt_after_a_failure_takes_the_flow_from_nobody(sink_case: Case) -> None:
    """A second driver has begun while the first one failed: the first one yields."""
    case = sink_case
    case.limit = 5
    case.source.seed(numbered(1, 31))
    passes = iter(range(9))

    def failing() -> SparkSession:
        if next(passes) == 1:
            case.drain()
            raise TransientError("the server is gone for a moment")
        return case.engine

    reports = drain(case.flow(), failing, Request(run=Run(), patience=Patience(60, 0.01, 0.05)))
    with pytest.raises(TakenOver, match="taken over by run"):
        list(reports)
    case.expect(numbered(1, 31))
    assert case.totals().rows == 30


def test_an_older_epoch_is_no_takeover(sink_case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that is behind may show the checkpoint of an earlier run."""
    case = sink_case
    case.limit = 5
    case.source.seed(numbered(1, 31))
    passes = iter(range(99))
    sink = type(case.flow().branches[0].sink)

    def failing() -> SparkSession:
        if next(passes) == 1:
            monkeypatch.setattr(sink, "peek", lambda *_: Checkpoint(0, run="an earlier one"))
            raise TransientError("the server is gone for a moment")
        return case.engine

    list(drain(case.flow(), failing, Request(run=Run(), patience=Patience(60, 0.01, 0.05))))
    monkeypatch.undo()
    case.expect(numbered(1, 31))


def test_a_restart_that_comes_late_is_refused(sink_case: Case) -> None:
    case = sink_case
    case.source.seed(numbered(1, 10))
    flow = case.flow().resolve()
    branch = flow.branches[0]
    old = branch.sink.open(flow.target(branch), Run())
    case.drain()
    with pytest.raises(TakenOver, match="taken over by run"):
        old.restart({}, "x")
    old.close()
    case.expect(numbered(1, 10))
