"""What an asset shows of the state of a query, and of a connector."""

from __future__ import annotations

from dataflow_assets.assets.metadata import lag_metadata, state_metadata
from dataflow_assets.contracts import Lag


def test_a_query_with_windows_shows_its_state_late_rows_and_watermark() -> None:
    lag = Lag(0, 0.0, {}, state=5, late=2, watermark=1_767_225_618_000)
    shown = {name: one.value for name, one in state_metadata(lag).items()}
    assert shown == {"state_bytes": 5, "late_rows": 2, "watermark": 1_767_225_618.0}
    assert state_metadata(lag).items() <= lag_metadata(lag).items()


def test_other_flows_show_nothing_of_it() -> None:
    assert state_metadata(Lag(0, 0.0, {})) == {}


def test_a_connector_shows_its_state_and_those_of_its_tasks() -> None:
    states = {"connector": "RUNNING", "task 0": "RUNNING", "task 1": "PAUSED"}
    lag = Lag(0, 0.0, {}, connector=states)
    assert {name: one.value for name, one in state_metadata(lag).items()} == {"connector": states}
