"""Rows with NaN where their table is ordered: Trino finds it unlike every number."""

from __future__ import annotations

from contextlib import closing

import pytest

import devservers
from dataflow_assets.connectors.trino import TrinoSource
from dataflow_assets.contracts import Limit

pytestmark = pytest.mark.heavy

ROWS = "(1, 1.0), (2, nan()), (2, -1.0), (3, infinity()), (3, nan()), (4, nan())"


@pytest.mark.parametrize("kind", ["real", "double"])
def test_a_row_whose_order_value_is_nan_is_read(
    trino: devservers.Trino, trino_schema: str, kind: str
) -> None:
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema}
    query = f"SELECT v, CAST(id AS {kind}) AS id FROM (VALUES {ROWS}) AS t (v, id)"
    columns = {"changeTrackingColumn": "v", "orderByColumn": "id"}
    source = TrinoSource.model_validate({**config, "query": query, **columns})
    read = []
    with closing(source.open("ns/flow")) as session:
        at, end = session.start(), session.end()
        while session.lags("table", at["table"], end["table"]):
            span = session.plan(at, Limit(2), end)
            for piece in span.slices:
                for batch in source.batches(piece, frozenset()):
                    read += batch.column("v").to_pylist()
            at = {"table": session.fold({**at, **span.upto})["table"]}
    assert sorted(read) == [1, 2, 2, 3, 3, 4]
