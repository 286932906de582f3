"""A polled table whose rows hold NaN where they are ordered."""

from __future__ import annotations

import pytest

import devservers
from dataflow_assets.errors import PermanentError
from tests.sdk.polled import Polled


@pytest.mark.parametrize("kind", ["real", "double precision", "numeric"])
def test_a_change_value_behind_which_no_number_comes_stops_the_flow(
    postgresql: devservers.PostgreSQL, schema: str, kind: str
) -> None:
    polled = Polled(postgresql.dsn(), schema, {"changeTrackingColumn": "v", "orderByColumn": "id"})
    polled.sink_options = {"upsertMode": True, "conflictKey": "id"}
    for table in ("source", "target"):
        polled.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v {kind})")
    polled.run("INSERT INTO source VALUES (1, 1), (2, 2)")
    polled.drain()
    polled.run("INSERT INTO source VALUES (3, 'NaN'), (4, 3)")
    with pytest.raises(PermanentError, match=r"column v of .*source.* holds NaN"):
        polled.drain()
    polled.run("DELETE FROM source WHERE id = 3")
    polled.run("INSERT INTO source VALUES (5, 4)")
    polled.drain()
    assert [id_ for (id_,) in polled.rows("id")] == [1, 2, 4, 5]


def test_nan_in_the_order_of_one_change_is_read(
    postgresql: devservers.PostgreSQL, schema: str
) -> None:
    polled = Polled(postgresql.dsn(), schema, {"changeTrackingColumn": "v", "orderByColumn": "o"})
    for table in ("source", "target"):
        polled.run(f"CREATE TABLE {table} (v int, o float8)")
    polled.run("INSERT INTO source VALUES (1, 1), (1, 'NaN')")
    polled.drain()
    polled.run("INSERT INTO source VALUES (2, 0)")
    polled.drain()
    assert polled.run("SELECT v, o::text FROM target ORDER BY 1, 2") == [
        (1, "1"),
        (1, "NaN"),
        (2, "0"),
    ]
