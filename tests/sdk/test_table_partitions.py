"""Partitions of an asset as rows of its table: stretches of time on a clock without a zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.table_partitions import Dimension, Window

BERLIN, HAVANA = ZoneInfo("Europe/Berlin"), ZoneInfo("America/Havana")


def clock(start: datetime, end: datetime) -> tuple[str, str]:
    """What a column without a zone shows in one window."""
    ((low, high),) = Dimension("at", ("key",), (Window(start, end),)).clocks()
    return str(low), str(high)


def berlin(hour: int, minute: int = 0, fold: int = 0) -> datetime:
    """On the day of 2025 on which the clock shows 02:00 to 03:00 twice."""
    return datetime(2025, 10, 26, hour, minute, fold=fold, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (berlin(2), berlin(2, fold=1)),
        (berlin(2), berlin(2, 30)),
        (berlin(2, 30), berlin(2, fold=1)),
    ],
    ids=str,
)
def test_a_window_that_the_clock_shows_again_is_refused(start: datetime, end: datetime) -> None:
    """Its rows and those of the later window could not be told apart: each run would take both."""
    with pytest.raises(PermanentError, match="at has no time zone, and its clock shows the time"):
        clock(start, end)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (berlin(1, 30), berlin(2)),
        (berlin(2, fold=1), berlin(2, 30, fold=1)),
        (berlin(2, fold=1), berlin(4)),
        (berlin(0), datetime(2025, 10, 27, tzinfo=BERLIN)),
        (datetime(2025, 11, 2, tzinfo=HAVANA), datetime(2025, 11, 3, tzinfo=HAVANA)),
    ],
    ids=str,
)
def test_other_windows_are_what_the_clock_shows(start: datetime, end: datetime) -> None:
    """A day of Havana begins with an hour that comes twice, and has it both times."""
    bare = start.replace(tzinfo=None, fold=0), end.replace(tzinfo=None, fold=0)
    assert clock(start, end) == tuple(map(str, bare))
