"""How `dataflow status` shows positions to people."""

from __future__ import annotations

from dataflow_assets.cli.status_view import COLUMNS, as_rows
from dataflow_assets.connectors.postgresql.cdc.position import Lsn, dump_end
from dataflow_assets.contracts import Checkpoint, Lag
from dataflow_assets.manifests.load import load
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
