"""What the soak calls flat."""

from __future__ import annotations

import pytest

from tests.stress.soak_meters import Meter, trend


def meter(factor: float = 1.1, more: float = 6) -> Meter:
    return Meter("threads", lambda: 0.0, factor, more)


@pytest.mark.parametrize(
    ("values", "flat"),
    [
        ([50.0] * 100, True),
        ([*range(20), *[50] * 80], True),  # only while everything is made for the first time
        ([50 + at * 0.5 for at in range(100)], False),  # one thread more every other look
        ([50.0] * 99 + [500.0], True),  # one look is no trend
        ([50.0] * 70 + [90.0] * 30, False),
        ([90.0] * 50 + [50.0] * 50, True),
    ],
)
def test_flat(values: list[float], flat: bool) -> None:
    assert trend(meter(), values).flat is flat


def test_nothing_more_is_allowed_where_the_tolerance_says_so() -> None:
    topics = meter(factor=1.0, more=0)
    assert trend(topics, [7.0] * 30).flat
    assert not trend(topics, [7.0] * 15 + [8.0] * 15).flat
    assert topics.tolerance == "x 1 + 0"
