"""A lane lets its flows go for their maintenance windows, and takes them up again."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from dataflow_assets.assets.lane_flows import LaneFlows
from dataflow_assets.flow import Flow
from tests.dagster.assets.lanes.shop import Shop
from tests.stand_in import until
from tests.windows import BERLIN, NIGHTLY, OPEN, REASON, WallClock


def test_a_flow_leaves_for_its_window_and_comes_back_by_itself(
    shop: Shop, clock: WallClock
) -> None:
    shop.add("a", maintenance=NIGHTLY)
    shop.add("b")
    for name in "ab":
        shop.produce(name, 1)
    running = shop.aside()
    until(lambda: shop.rows("a") == [1] and shop.driven() == {"default/a", "default/b"})
    clock.now = OPEN
    until(lambda: shop.driven() == {"default/b"})
    for name in "ab":
        shop.produce(name, 2)
    until(lambda: shop.rows("b") == [1, 2])
    assert shop.rows("a") == [1]
    clock.now = OPEN + timedelta(hours=2)
    until(lambda: shop.rows("a") == [1, 2])
    result = shop.ended(running)
    assert result.success
    assert f"leaves the lane: {REASON}" in shop.log(result, "a")


def test_a_lane_whose_flows_all_pause_ends(shop: Shop, clock: WallClock) -> None:
    shop.add("a", maintenance=NIGHTLY)
    shop.produce("a", 1)
    clock.now = OPEN
    assert shop.lane().success
    assert shop.rows("a") == []


@pytest.mark.parametrize("day", ["2026-10-23", "2027-03-26"])
def test_over_days_with_a_change_of_clocks_a_flow_is_driven_but_in_its_window(
    shop: Shop, looks: tuple[LaneFlows, dict[str, Flow]], clock: WallClock, day: str
) -> None:
    flows, _ = looks
    shop.edit("a", maintenance=NIGHTLY)
    begin = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=BERLIN)
    clock.now, pauses = begin, list[timedelta]()
    for _ in range(4):
        assert [flow.name for flow in flows.flows_to_drive()] == ["a"]
        opens = NIGHTLY.next_change(clock.now)
        assert opens is not None
        clock.now = opens
        assert not flows.flows_to_drive()
        assert flows.why_not(shop.flows[0]).startswith("in maintenance window `nightly` until 0")
        closes = NIGHTLY.next_change(opens)
        assert closes is not None
        pauses.append(closes - opens)
        clock.now = closes
    assert pauses == [timedelta(hours=2)] * 4
