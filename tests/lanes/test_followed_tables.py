"""Tables that are followed by a flow of a lane: the first load, and columns that come later."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.postgresql.cdc.held_snapshots import HELD
from tests.connectors.postgresql.cdc.followed import Followed
from tests.lanes.driving import Driving

SOON = 20.0  # seconds, also on a machine that has other things to do


@pytest.fixture
def followed(
    postgresql: devservers.PostgreSQL, schema: str, engine: SparkSession
) -> Iterator[Followed]:
    made = Followed(postgresql.dsn(), schema, engine, {"schemaChanges": "add"})
    made.make("id int PRIMARY KEY, name text")
    made.run("INSERT INTO source SELECT i, 'row ' || i FROM generate_series(1, 100) i")
    yield made
    made.remove()


def test_a_table_can_be_altered_right_after_its_first_load(followed: Followed, drive: Any) -> None:
    """Its locks go with the load, and the new column is added to the target by the lane."""
    driven: Driving = drive(followed.flow)
    driven.until(followed.same, SOON)
    driven.until(lambda: not HELD._held, 5)
    followed.run("SET lock_timeout = '2s'; ALTER TABLE source ADD COLUMN price numeric(8,2)")
    followed.run("UPDATE source SET price = id / 4.0 WHERE id % 2 = 0; DELETE FROM source "
                 "WHERE id = 1; INSERT INTO source VALUES (101, 'new', 7.5)")  # fmt: skip
    driven.until(lambda: len(followed.rows()[0]) == 3 and followed.same(), SOON)
    assert followed.rows()[0] == (2, "row 2", 0.5)
    assert driven.left(followed.flow) == []
    driven.end()
    assert sum(report.delta.rows for report in driven.reports(followed.flow)) == 100 + 50 + 2


def test_a_change_is_not_waited_for_by_who_has_none(followed: Followed, drive: Any) -> None:
    """Idle flows commit nothing, however much others write."""
    driven: Driving = drive(followed.flow)
    driven.until(followed.same, SOON)
    driven.going_on(1)
    count = len(driven.reports(followed.flow))
    followed.run("CREATE TABLE noise AS SELECT generate_series(1, 1000) i")
    time.sleep(0.1)
    driven.going_on(2)
    assert len(driven.reports(followed.flow)) == count
