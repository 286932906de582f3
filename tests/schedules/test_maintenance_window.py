"""When a maintenance window is open: against dateutil's own rules of RFC 5545, over DST changes."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from dateutil import rrule, tz
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow_assets.schedules.maintenance_window import MaintenanceWindow, Repeat
from tests.examples import examples

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",  # set its clocks back over midnight until 2011
    "America/Sao_Paulo",  # the same, and left out midnight in spring, until 2019
    "Australia/Lord_Howe",  # by half an hour
    "Pacific/Apia",  # left out a whole day, the 30th of December 2011
    "Asia/Kolkata",
)
HOUR = timedelta(hours=1)


def at(text: str, zone: str = "Europe/Berlin", fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)


def window(
    first: str, hours: float, repeat: Repeat | None = None, zone: str = "Europe/Berlin"
) -> MaintenanceWindow:
    return MaintenanceWindow(at(first, zone), hours * HOUR, repeat, ZoneInfo(zone), "nightly")


def changes(window: MaintenanceWindow, since: datetime, until: datetime) -> Iterator[datetime]:
    """Each opening and closing on a clock that jumps from one to the next."""
    now = since
    while (change := window.next_change(now)) is not None and change < until:
        now = change
        yield now


def expected_starts(window: MaintenanceWindow, until: datetime) -> list[datetime]:
    """By dateutil: wall times by its rules, and its own way to read those that do not exist."""
    if window.repeat is None:
        return [window.first.astimezone(UTC)]
    zone: Any = tz.gettz(str(window.zone))
    first = window.first.astimezone(window.zone).replace(tzinfo=None, fold=0)
    last = until.astimezone(window.zone).replace(tzinfo=None) + timedelta(days=2)
    rules: dict[str, dict[str, Any]] = {
        "daily": {"freq": rrule.DAILY},
        "weekly": {"freq": rrule.WEEKLY},
        "monthly": {
            "freq": rrule.MONTHLY,
            "bymonthday": range(min(first.day, 28), first.day + 1),
            "bysetpos": -1,
        },
    }
    walls = rrule.rrule(dtstart=first, until=last, **rules[window.repeat])
    starts = [tz.resolve_imaginary(wall.replace(tzinfo=zone)).astimezone(UTC) for wall in walls]
    return [window.first.astimezone(UTC), *starts[1:]]


@st.composite
def windows(draw: st.DrawFn) -> MaintenanceWindow:
    zone = ZoneInfo(draw(st.sampled_from(ZONES)))
    minutes = draw(st.integers(0, 3 * 366 * 24 * 60))  # beginning in the year 2009
    first = (at("2009-01-01", "UTC") + timedelta(minutes=minutes)).astimezone(zone)
    if draw(st.booleans()):  # near midnight and the hours in which clocks are changed
        first = first.replace(hour=draw(st.integers(0, 3)), fold=0).astimezone(UTC)
    repeat: Repeat | None = draw(st.sampled_from([None, "daily", "weekly", "monthly"]))
    length = timedelta(minutes=draw(st.integers(1, 30 * 60)))
    return MaintenanceWindow(first, length, repeat, zone)


@settings(max_examples=examples(500), deadline=None)
@given(windows(), st.integers(0, 366 * 24 * 60))
def test_a_window_opens_when_the_calendar_says(window: MaintenanceWindow, minutes: int) -> None:
    now = window.first.astimezone(UTC) + timedelta(minutes=minutes - 24 * 60)
    starts = expected_starts(window, now + timedelta(days=40))
    past = [start for start in starts if start <= now]
    assert window.is_open(now) == any(now < start + window.duration for start in past)
    assert window.last_start(now) == max(past, default=None)
    assert window.next_start(now) == min((s for s in starts if s > now), default=None)


@settings(max_examples=examples(200), deadline=None)
@given(windows())
def test_over_a_simulated_year_it_opens_and_closes_in_turn(window: MaintenanceWindow) -> None:
    begin = window.first - HOUR
    end = begin + timedelta(days=370)
    found = list(changes(window, begin, end))
    states = [window.is_open(change) for change in found]
    assert all(now != after for now, after in pairwise(states))
    moment = timedelta(microseconds=1)
    assert [window.is_open(change - moment) for change in found] == [not s for s in states]
    assert states[:1] == [True]


@pytest.mark.parametrize(
    ("first", "day", "opens", "closes"),
    [
        # No wall time 02:30: it counts from the offset before, as RFC 5545 says.
        ("2026-03-01T02:30", "2026-03-29", "2026-03-29T01:30Z", "2026-03-29T03:30Z"),
        ("2026-03-01T02:30", "2026-03-30", "2026-03-30T00:30Z", "2026-03-30T02:30Z"),
        # The clock goes from 02:00 to 03:00 meanwhile: the window lasts two hours all the same.
        ("2026-03-01T01:30", "2026-03-29", "2026-03-29T00:30Z", "2026-03-29T02:30Z"),
        # 02:30 comes twice: the first one opens.
        ("2026-10-01T02:30", "2026-10-25", "2026-10-25T00:30Z", "2026-10-25T02:30Z"),
        ("2026-10-01T02:30", "2026-10-26", "2026-10-26T01:30Z", "2026-10-26T03:30Z"),
    ],
)
def test_a_daily_window_where_clocks_are_changed(
    first: str, day: str, opens: str, closes: str
) -> None:
    nightly, midnight = window(first, 2, "daily"), at(f"{day}T00:00")
    found = list(changes(nightly, midnight, midnight + 20 * HOUR))
    assert found == [datetime.fromisoformat(opens), datetime.fromisoformat(closes)]


def test_the_second_of_two_equal_wall_times_may_be_the_first_start() -> None:
    first = at("2026-10-25T02:30", fold=1)
    nightly = MaintenanceWindow(first, HOUR, "daily", ZoneInfo("Europe/Berlin"))
    assert nightly.next_change(at("2026-10-25T02:30", fold=0)) == first.astimezone(UTC)
    assert not nightly.is_open(at("2026-10-25T02:45", fold=0))
    assert nightly.is_open(at("2026-10-25T02:45", fold=1))


def test_a_monthly_window_opens_on_the_last_day_of_a_shorter_month() -> None:
    monthly = window("2027-12-31T22:00", 4, "monthly")
    year = list(changes(monthly, at("2028-01-01T12:00"), at("2029-01-01T12:00")))
    days = [each.astimezone(ZoneInfo("Europe/Berlin")) for each in year[::2]]
    assert [(day.month, day.day) for day in days] == [
        (month, monthrange(2028, month)[1]) for month in range(1, 13)
    ]
    assert {day.hour for day in days} == {22}


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ("2026-11-29T01:59", ""),
        ("2026-11-29T02:00", "in maintenance window `nightly` until 04:00 Europe/Berlin"),
        ("2026-11-29T03:59", "in maintenance window `nightly` until 04:00 Europe/Berlin"),
        ("2026-11-29T04:00", ""),
    ],
)
def test_the_reason_says_until_when(now: str, reason: str) -> None:
    assert window("2026-11-01T02:00", 2, "daily").reason(at(now)) == reason


def test_the_reason_names_the_day_where_it_is_another_one() -> None:
    weekend = MaintenanceWindow(at("2026-11-28T00:00", "UTC"), 40 * HOUR)
    assert weekend.reason(at("2026-11-28T09:00", "UTC")) == (
        "in a maintenance window until 2026-11-29 16:00 UTC"
    )
    assert str(weekend) == "once, at 2026-11-28 00:00 UTC, for 1 day, 16:00:00"


def test_windows_that_follow_each_other_are_one() -> None:
    always = window("2026-11-01T02:00", 25, "daily")
    assert always.next_change(at("2026-11-29T12:00")) is None
    assert "never closes" in always.reason(at("2026-11-29T12:00"))
    # In February the next one begins before the last one is over, in March it does not.
    long = window("2027-01-31T00:00", 29 * 24, "monthly", "UTC")
    found = list(changes(long, at("2027-01-30T00:00", "UTC"), at("2027-04-15T00:00", "UTC")))
    days = [(each.month, each.day) for each in found]
    assert days == [(1, 31), (3, 29), (3, 31)]
