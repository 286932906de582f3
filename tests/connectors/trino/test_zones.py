"""Times with a zone are read in UTC wherever they are: in their own, one hour comes twice."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

import devservers
from dataflow_assets.connectors.trino import TrinoSource
from dataflow_assets.sdk.sql_table.positions import Part

pytestmark = pytest.mark.heavy

AT = "from_iso8601_timestamp('2026-10-25T01:30:00Z') AT TIME ZONE 'Europe/Berlin'"
MOMENT = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
TEXT = "2026-10-25 01:30:00.000 UTC"
NAMED = "row(at timestamp(3) with time zone, name varchar)"
WORDS = 'row(timestamp timestamp(3) with time zone, double double, "first name" varchar)'
DEEP = "row(m map(varchar, array(timestamp(3) with time zone)))"
VALUES = {
    "plain": (AT, MOMENT),
    "listed": (f"ARRAY[{AT}, NULL]", [MOMENT, None]),
    "named": (f"CAST(ROW({AT}, 'x') AS {NAMED})", {"at": MOMENT, "name": "x"}),
    "words": (  # Trino shows these names without quotes
        f"CAST(ROW({AT}, 0.5, 'x') AS {WORDS})",
        {"timestamp": MOMENT, "double": 0.5, "first name": "x"},
    ),
    "nothing": (f"CAST(NULL AS {NAMED})", None),
    "mapped": (f"MAP(ARRAY['a'], ARRAY[{AT}])", {"a": TEXT}),
    "keyed": (f"MAP(ARRAY[{AT}], ARRAY[ROW({AT})])", {TEXT: {"field1": TEXT}}),
    "deep": (
        f"ARRAY[CAST(ROW(MAP(ARRAY['a'], ARRAY[ARRAY[{AT}]])) AS {DEEP})]",
        [{"m": {"a": [TEXT]}}],
    ),
    "long": (f"CAST({AT} AS timestamp(12) with time zone)", f"{TEXT[:-4]}000000000 UTC"),
}


def test_the_hour_that_comes_twice_is_read_as_it_is(
    trino: devservers.Trino, trino_schema: str
) -> None:
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema}
    listed = ", ".join(f"{sql} AS {name}" for name, (sql, _) in VALUES.items())
    source = TrinoSource.model_validate(config | {"query": f"SELECT {listed}"})
    (batch,) = source.read(Part(None, None), frozenset())
    (found,) = batch.to_pylist()
    for name in ("mapped", "keyed"):
        found[name] = json.loads(found[name])
    found["deep"][0]["m"] = json.loads(found["deep"][0]["m"])
    assert found == {name: value for name, (_, value) in VALUES.items()}
