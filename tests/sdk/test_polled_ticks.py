"""A row that changes after a read, inside the same tick of its change column, is read all the same.

Changes are made one tick after another; between them the flow reads. Whatever the precision of the
change values: each change must arrive.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

import devservers
from dataflow_assets.connectors.clickhouse import client
from dataflow_assets.sdk.sql_table import ticks
from tests.connectors.clickhouse.test_source import ids, reader
from tests.sdk.polled import Polled

# A minute apart: cut to minutes or seconds, not all are whole quarters of an hour, as days are.
AGO = "(now() - interval '1 hour' - id * interval '61 seconds')"


@pytest.fixture
def polled(postgresql: devservers.PostgreSQL, schema: str) -> Polled:
    """An appended target: what is read twice stands twice."""
    return Polled(postgresql.dsn(), schema)


@pytest.fixture
def server(clickhouse: devservers.ClickHouse, database: str) -> Iterator[Any]:
    connected: Any = client.connect(clickhouse.dsn(database), "tests")
    connected.dsn = clickhouse.dsn(database)
    yield connected
    connected.close()


def make(polled: Polled, kind: str, written: str) -> None:
    """Rows 1 to 9, changed more than an hour ago."""
    for name in ("source", "target"):
        polled.run(f"CREATE TABLE {name} (id int, updated_at {kind})")
    polled.run("ALTER TABLE source ADD PRIMARY KEY (id)")
    polled.run("INSERT INTO source SELECT generate_series(1, 9)")
    polled.run(f"UPDATE source SET updated_at = {written.replace('clock_timestamp()', AGO)}")


def change(polled: Polled, written: str, at: int) -> tuple[int, str]:
    """The row as it has to arrive."""
    query = f"UPDATE source SET updated_at = {written} WHERE id = {at} RETURNING updated_at::text"
    ((value,),) = polled.run(query)
    return at, str(value)


def arrived(polled: Polled) -> list[tuple[int, str]]:
    return [(int(number), str(value)) for number, value in polled.rows("id, updated_at::text")]


SECONDS = "date_trunc('second', clock_timestamp())"


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("timestamptz(0)", "clock_timestamp()"),
        ("timestamptz(2)", "clock_timestamp()"),
        ("timestamp", SECONDS),
        ("timestamp", f"{SECONDS} AT TIME ZONE 'Asia/Kolkata' - interval '11 hours'"),
        ("timestamptz", "date_trunc('milliseconds', clock_timestamp())"),
        ("timestamptz", f"CASE id % 2 WHEN 0 THEN {SECONDS} ELSE clock_timestamp() END"),
        ("timestamptz", "clock_timestamp()"),
    ],
    ids=[
        *("seconds by type", "hundredths by type"),
        *("seconds", "seconds of another zone", "milliseconds"),
        *("seconds by one writer", "microseconds"),
    ],
)
def test_changes_inside_one_tick_all_arrive(polled: Polled, kind: str, written: str) -> None:
    """From the highest key to the lowest: what comes later lies below the position."""
    make(polled, kind, written)
    polled.drain()
    expected = set()
    for at in range(6, 0, -1):
        expected.add(change(polled, written, at))
        polled.drain()
    time.sleep(1.6)  # a type rounds: its values may lie half a second ahead
    polled.drain()
    found = arrived(polled)
    assert expected <= set(found)
    assert polled.drain() == 0
    assert len(found) == len(set(found))


def test_microseconds_are_read_at_once(polled: Polled) -> None:
    """No tick is waited for that the values do not have."""
    make(polled, "timestamptz", "clock_timestamp() - id * interval '1.234567 s'")
    polled.drain()
    for at in range(1, 6):
        change(polled, "clock_timestamp()", at)
        assert polled.drain() == 1


@pytest.mark.parametrize(
    ("cut", "width"),
    [
        (1, 1),
        (1_000, 1_000),
        (10**6, 10**6),
        (10**8, 10**8),
        (ticks.SECOND, ticks.SECOND),
        (ticks.MINUTE, ticks.MINUTE),
        (60 * ticks.MINUTE, ticks.DAY),
        (ticks.DAY, ticks.DAY),
    ],
)
def test_the_values_tell_their_tick(cut: int, width: int) -> None:
    """A midnight is a whole quarter of an hour in every zone: hours are taken for days."""
    values = [at * 7_919 * cut for at in range(1, 100)]
    multiples = {w: sum(value % w == 0 for value in values) for w in ticks.WIDTHS}
    assert ticks.tick(multiples, len(values)) in {width, 10 * width}


def test_one_writer_of_seconds_among_others_is_enough() -> None:
    assert ticks.tick({1: 1_000, 10**3: 1_000, 10**6: 12, 10**9: 6}, 1_000) == ticks.SECOND
    assert ticks.tick({1: 1_000, 10**3: 1_000, 10**6: 2, 10**9: 0}, 1_000) < 10**6
    assert ticks.tick({}, 0) == 1


def test_a_day_is_over_when_the_longest_one_is() -> None:
    assert ticks.running(10 * ticks.DAY, ticks.DAY) == 9 * ticks.DAY - 60 * ticks.MINUTE
    assert ticks.running(ticks.MINUTE + 5, ticks.SECOND) == ticks.MINUTE


class TestDays:
    """`date` tells nothing of the hour: its rows are read when the day is over."""

    @pytest.fixture
    def days(self, polled: Polled) -> Polled:
        for name in ("source", "target"):
            polled.run(f"CREATE TABLE {name} (id int PRIMARY KEY, n int, updated_at date)")
        polled.run("INSERT INTO source VALUES (1, 1, now()::date - 2), (2, 1, now()::date)")
        polled.run("INSERT INTO source VALUES (3, 1, now()::date)")
        return polled

    def test_the_day_that_still_runs_waits_and_is_told(
        self, days: Polled, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            days.drain()
        assert days.rows("id") == [(1,)]
        assert "the rows of a day are read when the day is over" in caplog.text
        assert "overlapSeconds to 86400 or more" in caplog.text
        days.run("UPDATE source SET updated_at = updated_at - 2")
        days.drain()
        assert days.rows("id") == [(1,), (2,), (3,)]

    def test_an_overlap_of_a_day_reads_it_at_once_and_again(
        self, days: Polled, caplog: pytest.LogCaptureFixture
    ) -> None:
        days.options, days.sink_options = {"overlapSeconds": 86_400}, {"upsertMode": True}
        with caplog.at_level(logging.WARNING):
            days.drain()
        assert "is over" not in caplog.text
        assert days.rows("id, n") == [(1, 1), (2, 1), (3, 1)]
        days.run("UPDATE source SET n = 2 WHERE id = 2")
        days.run("INSERT INTO source VALUES (4, 1, now()::date)")
        days.drain()
        assert days.rows("id, n") == [(1, 1), (2, 2), (3, 1), (4, 1)]


def test_times_cut_to_minutes_are_told(polled: Polled, caplog: pytest.LogCaptureFixture) -> None:
    make(polled, "timestamptz", "date_trunc('minute', clock_timestamp())")
    with caplog.at_level(logging.WARNING):
        polled.drain()
    assert len(arrived(polled)) == 9
    assert "updated_at holds whole minutes" in caplog.text


def test_an_overlap_of_a_time_without_zone_is_by_the_server_s_clock(polled: Polled) -> None:
    """West of Greenwich the clock of UTC is hours ahead of the values."""
    polled.dsn += "?options=-c%20TimeZone%3DAmerica/Los_Angeles"
    for name in ("source", "target"):
        columns = "id int PRIMARY KEY, updated_at timestamp"
        polled.run(f"CREATE TABLE {name} ({columns})")
    polled.options, polled.sink_options = {"overlapSeconds": 60}, {"upsertMode": True}
    polled.run("INSERT INTO source VALUES (5, now())")
    polled.drain()
    polled.run("INSERT INTO source VALUES (4, now() - interval '20 seconds'), (6, now())")
    polled.drain()
    assert polled.rows("id") == [(4,), (5,), (6,)]


@pytest.mark.parametrize(("kind", "told"), [("timestamp", True), ("timestamptz", False)])
def test_the_hour_that_comes_twice_is_told(
    polled: Polled, caplog: pytest.LogCaptureFixture, kind: str, told: bool
) -> None:
    polled.dsn += "?options=-c%20TimeZone%3DEurope/Berlin"
    make(polled, kind, "clock_timestamp()")
    with caplog.at_level(logging.WARNING):
        polled.drain()
    words = "updated_at has no time zone, and the server's TimeZone is Europe/Berlin"
    assert (words in caplog.text) == told


@pytest.mark.parametrize(("index", "told"), [("", True), ("UNIQUE", False)])
def test_a_change_column_that_holds_no_times_is_told(
    polled: Polled, caplog: pytest.LogCaptureFixture, index: str, told: bool
) -> None:
    polled.options = {"changeTrackingColumn": "version"}
    for name in ("source", "target"):
        polled.run(f"CREATE TABLE {name} (id int PRIMARY KEY, version int {index})")
    polled.run("INSERT INTO source VALUES (1, 1), (2, 2)")
    with caplog.at_level(logging.WARNING):
        polled.drain()
    words = "version (integer) holds no times, and several rows may have the same value"
    assert (words in caplog.text) == told


class TestClickHouse:
    """The same of a table of ClickHouse, where rows are added and not changed."""

    @pytest.mark.parametrize(
        ("kind", "written"),
        [
            ("DateTime64(6)", "toDateTime64(now(), 6)"),
            ("DateTime64(9)", "toDateTime64(now64(2), 9)"),
            ("DateTime64(6)", "now64(6)"),
        ],
        ids=["seconds", "hundredths", "microseconds"],
    )
    def test_rows_of_one_tick_all_arrive(self, server: Any, kind: str, written: str) -> None:
        columns = f"id Int64, created_at {kind} DEFAULT {written}"
        server.command(f"CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY id")
        server.command("INSERT INTO t VALUES (21, now() - 61)")  # not all at a quarter of an hour
        flow, found = reader(server), list[int]()
        for number in range(20, 0, -1):
            server.command(f"INSERT INTO t (id) VALUES ({number})")
            found += ids(flow.read())
        time.sleep(1.1)
        found += ids(flow.read())
        assert sorted(found) == list(range(1, 22))

    def test_a_day_is_read_when_it_is_over(
        self, server: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.command("CREATE TABLE t (id Int64, day Date) ENGINE = MergeTree ORDER BY id")
        server.command("INSERT INTO t VALUES (1, today() - 2), (2, today())")
        flow = reader(server, changeTrackingColumn="day")
        with caplog.at_level(logging.WARNING):
            assert ids(flow.read()) == [1]
        assert "day holds whole days: the rows of a day are read when the day is" in caplog.text

    def test_a_change_column_that_holds_no_times_is_told(
        self, server: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.command("CREATE TABLE t (id Int64, n Int64) ENGINE = MergeTree ORDER BY id")
        server.command("INSERT INTO t VALUES (1, 1)")
        with caplog.at_level(logging.WARNING):
            assert ids(reader(server, changeTrackingColumn="n").read()) == [1]
        assert "n (Int64) holds no times" in caplog.text
