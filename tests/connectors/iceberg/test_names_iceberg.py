"""Columns of any name in Iceberg tables: made, appended, upserted, deleted, read, checkpointed."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from dataflow_assets.connectors.iceberg import IcebergSource
from dataflow_assets.connectors.iceberg.sink.session import IcebergSinkSession
from dataflow_assets.contracts import Limit, PartSlice
from devservers import SeaweedFS
from tests.connectors.iceberg.driver import TARGET, connection, make_sink, opened, table_rows
from tests.connectors.iceberg.test_upsert import _put

KEY, OTHER, THIRD = "1 Order.No", 'it\'s "Größe" 100%\\{x}', "select"
COLUMNS = {KEY: "string", OTHER: "long", THIRD: "timestamptz"}


def test_columns_of_any_name_are_made_upserted_deleted_and_read(
    seaweedfs: SeaweedFS, namespace: str, catalog: Catalog, spark: SparkSession
) -> None:
    upsert = {"upsertMode": True, "conflictKey": [KEY], "softDeleteColumn": THIRD}
    layout = {"columns": COLUMNS, "sortBy": [f"`{KEY}`"]}
    sink = make_sink(seaweedfs, namespace, **upsert, **layout)
    session = opened(sink, sample=pa.schema([]))
    assert isinstance(session, IcebergSinkSession)

    def put(*rows: dict[str, Any]) -> None:
        _put(spark, sink, session, rows)

    put({KEY: "a", OTHER: 1}, {KEY: "b'\"", OTHER: 2})
    put({KEY: "b'\"", OTHER: 3}, {KEY: "a", "op": 2})
    session.close()
    rows = {row[KEY]: row for row in table_rows(catalog, namespace)}
    assert {key: row[OTHER] for key, row in rows.items()} == {"a": 1, "b'\"": 3}
    assert [key for key, row in rows.items() if row[THIRD]] == ["a"]
    stored = sink.peek(TARGET)
    assert stored is not None
    assert stored.positions["p0"] == 4
    source = IcebergSource.model_validate(connection(seaweedfs, namespace, "orders"))
    with closing(source.open("default/read")) as reading:
        span = reading.plan(reading.start(), Limit(100))
    parts = [piece for piece in span.slices if isinstance(piece, PartSlice)]
    found = [each for piece in parts for each in source.batches(piece, frozenset())]
    assert {KEY, OTHER} <= set(found[0].schema.names)
