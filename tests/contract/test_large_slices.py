"""A slice whose records turn out larger than planned ends early, and nothing is stepped over."""

from __future__ import annotations

import pytest

from dataflow_assets.contracts import Limit, Run
from dataflow_assets.errors import TransientError
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Report, Request
from tests.contract.conftest import Case, numbered
from tests.contract.drivers import encode

ROWS = numbered(1, 21)  # ten in each of two partitions
SIZE = len(encode(ROWS[-1]))


def _drain(case: Case, most_bytes: int, *, patience: float = 30) -> list[Report]:
    """The source plans by records alone, so every slice is all there is."""
    flow = Flow(
        "contract",
        case.name,
        case.source.declare(),
        (Branch(case.sink.declare()),),
        Policies(limit=Limit(bytes=most_bytes)),
        hash="h1",
    )
    order = Request(run=Run(), patience=Patience(patience, 0.01, 0.05))
    return list(drain(flow, lambda: case.engine, order))


def test_a_slice_that_is_much_larger_than_planned_is_read_in_several_micro_batches(
    sink_case: Case,
) -> None:
    sink_case.source.seed(ROWS)
    reports = [report for report in _drain(sink_case, 3 * SIZE) if not report.last]
    sink_case.expect(ROWS)
    assert sink_case.totals().rows == 20
    assert [report.delta.rows for report in reports] == [12, 8]  # of twice the limit at most


@pytest.mark.parametrize("sink", ["clickhouse"], indirect=True)
def test_a_recorded_chunk_is_read_to_its_end_whatever_the_limit_is_by_then(
    sink_case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink_case.source.seed(ROWS)
    monkeypatch.setenv("DATAFLOW_FAILPOINT", "clickhouse.inserted:raise")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", sink_case.name)
    with pytest.raises(TransientError):
        _drain(sink_case, 1_000_000, patience=0)
    monkeypatch.delenv("DATAFLOW_FAILPOINT")
    _drain(sink_case, 2 * SIZE)
    sink_case.expect(ROWS)
    assert sink_case.totals().rows == 20
