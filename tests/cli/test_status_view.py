"""How `dataflow status` shows positions to people."""

from __future__ import annotations

import pytest

from dataflow_assets.assets.flow_events import FlowEvents
from dataflow_assets.assets.graph import build
from dataflow_assets.assets.metadata import lag_check, lag_metadata
from dataflow_assets.cli.status_view import COLUMNS, as_json, as_rows, as_summary
from dataflow_assets.connectors.postgresql.cdc.position import Lsn, dump_end
from dataflow_assets.contracts import Checkpoint, Lag, Totals, oldest
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.request import Report
from dataflow_assets.runs.statuses import Answer, Status
from tests import ROOT


def test_of_the_end_of_a_log_only_the_place_is_shown() -> None:
    """`--json` has what the source marks it by."""
    (flow,) = load([ROOT / "examples" / "demo-cdc"]).flows
    branch = flow.branches[0]
    lag = Lag(858, 10.0, {"wal": dump_end(Lsn(0x9EF7458))})
    checkpoint = Checkpoint(1, {"wal": '{"lsn": "0/9E67C88", "tables": ["public.orders"]}'})
    found = Status(flow.id, branch.id, flow.source_address, branch.address, checkpoint, lag)
    (row,) = as_rows([Answer(flow, [found])], {})
    shown = dict(zip([title for title, _ in COLUMNS], row, strict=True))
    assert shown["checkpoint"] == "wal:lsn 0/9E67C88"
    assert shown["source end"] == "wal:lsn 0/9EF7458"


def test_an_age_that_nobody_knows_is_shown_as_that() -> None:
    """A broker that gave no unread record in time: 0 s would say that the flow is up to date."""
    (flow,) = load([ROOT / "examples" / "demo-cdc"]).flows
    branch, lag = flow.branches[0], Lag(5, None, {"0": 9})
    ends = flow.source_address, branch.address
    (late, unknown) = (
        Answer(flow, [Status(flow.id, branch.id, *ends, Checkpoint(1), one)])
        for one in (Lag(1, 3_000.0, {"0": 9}), lag)
    )
    column = [title for title, _ in COLUMNS].index("seconds")
    assert [row[column] for row in as_rows([late, unknown], {})] == ["?", "3000"]
    assert as_summary([late, unknown], {}) == "2 flows: 0 in time, 1 late, 1 not known"
    (shown_flow,) = as_json([unknown], str, {})["flows"]
    assert shown_flow["branches"][0]["lag_seconds"] is None
    passed, shown = lag_check(flow, lag.seconds)
    assert not passed
    assert str(shown["lag_seconds"].value).startswith("not known")
    assert "lag_seconds" not in lag_metadata(lag)
    events = FlowEvents(build([flow]).nodes)
    events.take(Report(flow.id, branch, branch.address, Checkpoint(1), Totals(), lag, 0.1))
    assert events.lag_seconds() is None


@pytest.mark.parametrize(
    ("ages", "together"),
    [([], 0.0), ([0.0, 3.0], 3.0), ([None, 3.0], 3.0), ([None, 0.0], None), ([None], None)],
)
def test_the_oldest_of_ages_some_of_which_are_not_known(
    ages: list[float | None], together: float | None
) -> None:
    assert oldest(ages) == together
