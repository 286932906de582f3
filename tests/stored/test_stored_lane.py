"""What an earlier version has noted of a lane in Dagster's storage is understood."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from dataflow_assets.assets.claims import Claims
from dataflow_assets.assets.heartbeat import Heartbeat
from dataflow_assets.assets.lane_book import Book
from dataflow_assets.assets.lane_departures import Departures
from dataflow_assets.assets.mirrored_checkpoints import mirrored_together, outdated
from dataflow_assets.connectors.memory import Store
from tests.stored import lanes
from tests.stored.registry import GOES_ON, LEAVES, asset, flows
from tests.stored.versions import copies


@pytest.mark.parametrize(("copy", "name"), copies(["lane"]))
def test_a_lane_that_was_killed_is_known_with_its_flows(
    copy: Path, name: str, store: Store
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        run_id = lanes.load(copy.read_text(), instance, store)
        driven, left = flows(store)
        page = Book(instance, name and "shared").read()
        assert (page.run, [*page.flows]) == (run_id, [driven.id])
        (departure,) = Departures(instance).of([driven, left]).values()
        assert "offset 0" in departure.error and departure.times == 1
