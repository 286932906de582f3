"""Polled tables whose change values are coarse, of no zone, or of two precisions: none is lost."""

from __future__ import annotations

import time
from contextlib import closing
from itertools import islice

import pytest

import devservers
from dataflow_assets.contracts import Limit, PartSlice
from tests.sdk.polled import Polled


@pytest.fixture
def polled(postgresql: devservers.PostgreSQL, schema: str) -> Polled:
    """An appended target: what is read twice stands twice."""
    return Polled(postgresql.dsn(), schema)


def make(polled: Polled, columns: str) -> None:
    for name in ("source", "target"):
        polled.run(f"CREATE TABLE {name} (id int, {columns})")
    polled.run("ALTER TABLE source ADD PRIMARY KEY (id)")


def ids(polled: Polled) -> list[int]:
    return [number for (number,) in polled.rows("id")]


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz", "date"])
def test_a_day_is_read_though_no_later_day_has_rows(polled: Polled, kind: str) -> None:
    make(polled, f"updated_at {kind}")
    polled.run("INSERT INTO source VALUES (1, date_trunc('day', now()) - interval '4 days')")
    polled.run("INSERT INTO source VALUES (2, date_trunc('day', now()) - interval '3 days')")
    polled.drain()
    assert ids(polled) == [1, 2]


@pytest.mark.parametrize(
    "kind", ["timestamptz(0)", "timestamptz(3)", "timestamptz", "timestamp(0)"]
)
def test_a_start_at_a_time_reads_the_row_of_that_time(polled: Polled, kind: str) -> None:
    make(polled, f"updated_at {kind}")
    for number, at in enumerate(("11:59:59Z", "12:00:00Z", "12:00:01Z")):
        polled.run(f"INSERT INTO source VALUES ({number}, '2026-01-05T{at}')")
    with closing(polled.source.open("polled/from")) as session:
        span = session.plan(session.start("2026-01-05T12:00:00Z"), Limit())
        read = []
        for piece in span.slices:
            assert isinstance(piece, PartSlice)
            batches = polled.source.batches(piece, frozenset())
            read += [number for batch in batches for number in batch.column("id").to_pylist()]
    assert read == [1, 2]


def test_values_of_the_second_change_column_are_not_rounded_to_the_first(polled: Polled) -> None:
    """`updated_at` keeps seconds, and `created_at`, which counts where it is null, more."""
    make(polled, "created_at timestamptz, updated_at timestamptz(0)")
    polled.run("INSERT INTO source VALUES (5, '2026-01-05T12:00:00.6Z')")
    polled.drain()
    polled.run("INSERT INTO source VALUES (3, '2026-01-05T11:00Z', '2026-01-05T12:00:01Z')")
    polled.drain()
    assert ids(polled) == [3, 5]


def test_a_first_load_goes_on_in_large_parts_behind_rows_that_have_changed(polled: Polled) -> None:
    """What was changed since the load began is read after it, and is no measure of its parts."""
    polled.records = 5_000
    make(polled, "updated_at timestamptz")
    polled.run(
        "INSERT INTO source SELECT n, now() - interval '1 hour' FROM generate_series(1, 60000) n"
    )
    spans = polled.spans()
    next(spans)
    polled.run("UPDATE source SET updated_at = now() WHERE id > 20000")
    later = list(islice(spans, 30))
    assert len(later) < 30
    polled.drain()
    assert len(set(ids(polled))) == 60_000


def test_an_overlap_does_not_spare_the_wait_for_the_tick_of_another_zone(polled: Polled) -> None:
    """What writes UTC into a server of another zone is hours behind the server's clock."""
    make(polled, "updated_at timestamp")
    polled.run("ALTER TABLE target ADD PRIMARY KEY (id)")
    polled.options = {"overlapSeconds": 2}
    polled.sink_options = {"upsertMode": True, "conflictKey": ["id"]}
    clock = "date_trunc('second', clock_timestamp() AT TIME ZONE 'UTC') - interval '3 hours'"
    before = f"{clock} - n * interval '61 seconds'"
    polled.run(f"INSERT INTO source SELECT n, {before} FROM generate_series(1, 10) n")
    polled.drain()
    changed = []
    for number in range(9, 0, -1):  # never are all rows at whole minutes: the tenth is not
        query = f"UPDATE source SET updated_at = {clock} WHERE id = {number} RETURNING updated_at"
        changed += [(number, value) for (value,) in polled.run(query)]
        polled.drain()
    time.sleep(3.1)
    polled.drain()
    assert polled.rows("id, updated_at")[:9] == sorted(changed)


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz", "date"])
@pytest.mark.parametrize("zone", ["America/New_York", "UTC", "Asia/Tokyo"])
def test_a_start_at_a_time_goes_by_the_server_s_own_zone(
    polled: Polled, postgresql: devservers.PostgreSQL, kind: str, zone: str
) -> None:
    """The clock that has written the values, and by which all else goes."""
    name = f"zoned_{polled.schema}"
    polled.run(f'CREATE DATABASE "{name}"')
    try:
        polled.run(f"ALTER DATABASE \"{name}\" SET TimeZone = '{zone}'")
        other = Polled(postgresql.dsn(name), "public")
        make(other, f"updated_at {kind}")
        for hour in range(0, 48, 2):
            add = f"INSERT INTO source VALUES ({hour}, '2026-01-05T00:07:03Z'::timestamptz"
            other.run(f"{add} + interval '{hour} hours')")
        with closing(other.source.open("polled/from")) as session:
            span = session.plan(session.start("2026-01-05T22:00:00Z"), Limit())
            read = [
                number
                for piece in span.slices
                for batch in other.source.batches(piece, frozenset())
                for number in batch.column("id").to_pylist()
            ]
        first = {"America/New_York": 6, "UTC": 0, "Asia/Tokyo": 16}[zone]
        assert min(read) == (first if kind == "date" else 22)
        assert max(read) == 46
    finally:
        polled.run(f'DROP DATABASE "{name}" WITH (FORCE)')
