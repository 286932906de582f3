"""Polled tables whose change values are coarse, of no zone, or of two precisions: none is lost."""

from __future__ import annotations

from itertools import islice

import pytest

import devservers
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
