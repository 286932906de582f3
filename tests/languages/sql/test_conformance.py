"""The thirty cases of conformance, on a broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dataflow_assets.flow import Flow
from dataflow_assets.runs.request import Report
from tests.languages.sql.cases import CASES, Case
from tests.languages.sql.files import Sql

Run = Callable[[Flow], list[Report]]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where states are."""
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))


def test_every_case_is_here() -> None:
    assert sorted({one.number for one in CASES}) == list(range(1, 31))


def written(case: Case, sql: Sql) -> Flow:
    return sql.write(
        case.source,
        case.target,
        case.query,
        case.settings,
        source_with=case.reads,
        target_with=case.writes,
    )


@pytest.mark.parametrize("case", CASES, ids=lambda one: one.number)
def test_a_case_that_runs(case: Case, sql: Sql, run: Run) -> None:
    flow = written(case, sql)
    for changes in [[one] for one in case.sent] if case.grouped else [case.sent]:
        sql.send(changes)
        run(flow)
    rows, seen = sql.rows(), list(case.seen)
    if case.grouped:  # groups have no order among each other
        assert sorted(rows, key=str) == sorted(seen, key=str)
    else:
        assert rows == seen
    if not case.rejected:
        return
    reasons = [
        json.loads(one or b"")["error"]["message"]
        for _, _, one in sql.stored(f"{sql.target}.rejected")
    ]
    assert [part in one for part, one in zip(case.rejected, reasons, strict=True)] == [True]
