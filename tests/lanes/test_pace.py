"""How much of a backlog one turn reads."""

from __future__ import annotations

import pytest

from dataflow_assets.contracts import Limit
from dataflow_assets.lanes.pace import TURN_SECONDS, Pace

DECLARED = Limit(records=1_600_000, bytes=160 * 1024 * 1024)


def turns(*seconds: float) -> list[int]:
    """The records of the first turn, and of each after one that took so long."""
    pace = Pace()
    found = [pace.limit(DECLARED).records]
    for one in seconds:
        pace.note_turn(one)
        found.append(pace.limit(DECLARED).records)
    return found


def test_turns_grow_until_they_take_as_long_as_they_may() -> None:
    assert turns(0.5, 2.0, TURN_SECONDS) == [100_000, 400_000, 800_000, 800_000]


def test_a_turn_that_took_too_long_is_followed_by_one_of_half_the_size_at_least() -> None:
    assert turns(60.0, 8.0) == [100_000, 50_000, 25_000]


@pytest.mark.parametrize("seconds", [0.001, 0.0])
def test_a_turn_is_never_larger_than_the_flow_allows(seconds: float) -> None:
    assert turns(*[seconds] * 9)[-1] == DECLARED.records


def test_a_turn_is_never_smaller_than_what_tasks_read_beside_others() -> None:
    assert turns(*[60.0] * 9)[-1] == DECLARED.records // 64
    small = Limit(records=8_000, bytes=1024)
    assert Pace().limit(small) == Limit(records=5_000, bytes=1024)
