"""Cron expressions: what they mean, which are refused, and that Dagster means the same times."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from dagster._utils.schedules import (
    schedule_execution_time_iterator,
)

from dataflow_assets.schedules.cron import CronTimes

TEXTS = [
    "0 3 * * *",
    "30 2 * * *",
    "*/20 * * * *",
    "0 */2 * * *",
    "15 1,2 * * *",
    "0 0 1,15 * 1",
    "5/15 4 * jan-mar mon-fri",
    "0 0 29 2 *",
    "30 1 ? * 0",
    "0 0 31 * *",
    "0 45 23 * * sun",
]
CHANGES = {
    "Europe/Berlin": ("2026-03-28", "2026-10-24"),
    "America/New_York": ("2026-03-07", "2026-10-31"),
    "Asia/Kathmandu": ("2026-12-30",),
    "UTC": ("2028-02-27",),
}
STARTS = [(zone, day) for zone, days in CHANGES.items() for day in days]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("zone", "day"), STARTS)
def test_the_times_are_those_of_dagster_also_where_clocks_change(
    text: str, zone: str, day: str
) -> None:
    times, here = CronTimes.parse(text), ZoneInfo(zone)
    moment = datetime.fromisoformat(f"{day}T12:00:00+00:00")
    theirs = schedule_execution_time_iterator(moment.timestamp() + 1, times.text, zone)
    for _ in range(2 if "29 2" in text else 12):
        moment = times.after(moment, here)
        assert moment == next(theirs).astimezone(UTC)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("*/5 0 3 * * *", "Write `0 3 \\* \\* \\*`, which ticks at second 0"),
        ("@daily", "must have five fields .* it has 1"),
        ("0 3 * *", "it has 4"),
        ("60 3 * * *", "has a minute that cannot be read: 0 to 59"),
        ("0 24 * * *", "has a hour that cannot be read: 0 to 23"),
        ("0 3 0 * *", "has a day of the month"),
        ("0 3 * 13 *", "has a month that cannot be read: 1 to 12, or jan to dec"),
        ("0 3 * * 7", "has a day of the week that cannot be read: 0 to 6, or sun to sat"),
        ("0 3 * * fri-mon", "has a day of the week"),
        ("0 3-1 * * *", "has a hour"),
        ("*/0 3 * * *", "has a minute"),
        ("1- 3 * * *", "has a minute"),
        (", 3 * * *", "has a minute"),
        ("0 3 L * *", "has a day of the month"),
        ("0 3 31 2,4 *", "never comes: these months have at most 30 days"),
    ],
)
def test_an_expression_that_no_cron_job_takes_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        CronTimes.parse(text)
