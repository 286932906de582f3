"""Two drivers of one flow: the newer one goes on, and nothing of the older one counts twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataflow_assets.contracts import Run
from dataflow_assets.errors import TakenOver
from tests.contract.conftest import Case, numbered
from tests.contract.test_recreated import Draining, held


def test_a_second_driver_fences_the_first(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of the first has read its records when the second one begins, and commits last."""
    case.limit = 5
    case.source.seed(numbered(1, 41))
    with held(monkeypatch, tmp_path, case.sink.in_task) as wait:
        first = Draining(case)
        wait()
        monkeypatch.delenv("DATAFLOW_FAILPOINT")
        case.drain()
        case.expect(numbered(1, 41))
        assert first.is_alive()
    first.join(60)
    assert isinstance(first.error, TakenOver), first.error
    assert "taken over by run" in str(first.error)
    case.expect(numbered(1, 41))
    assert case.totals().rows == 40


def test_a_restart_that_comes_late_is_refused(case: Case) -> None:
    case.source.seed(numbered(1, 10))
    flow = case.flow().resolved()
    branch = flow.branches[0]
    old = branch.sink.open(flow.target(branch), Run())
    case.drain()
    with pytest.raises(TakenOver, match="taken over by run"):
        old.restart({}, "x")
    old.close()
    case.expect(numbered(1, 10))
