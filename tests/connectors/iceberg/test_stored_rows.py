"""Rows of data files in the columns that their table has by now, held against PyIceberg's scan."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask

from dataflow_assets.connectors.iceberg.bucket_catalog import BucketCatalog
from dataflow_assets.connectors.iceberg.table.data_files import ParquetFile, data_file, write_target
from dataflow_assets.connectors.iceberg.table.stored_rows import (
    IcebergUnreadable,
    live_rows,
    stored_rows,
)
from dataflow_assets.connectors.iceberg.types import file_schema
from dataflow_assets.languages.tableflow.declared_sinks import BucketSink

INNER = ice.StructType(
    ice.NestedField(5, "a", ice.IntegerType()), ice.NestedField(6, "b", ice.StringType())
)
SCHEMA = Schema(
    ice.NestedField(1, "id", ice.IntegerType(), required=True),
    ice.NestedField(2, "place", INNER),
    ice.NestedField(3, "list", ice.ListType(7, INNER.model_copy(deep=True), False)),
    ice.NestedField(4, "map", ice.MapType(8, ice.StringType(), 9, ice.FloatType(), False)),
)
ROWS = [
    {"id": 1, "place": {"a": 1, "b": "x"}, "list": [{"a": 2, "b": "y"}, None], "map": [("k", 0.5)]},
    {"id": 2, "place": None, "list": None, "map": None},
    {"id": 3, "place": {"a": None, "b": None}, "list": [], "map": [("k", None), ("l", 1.5)]},
]


@pytest.fixture
def catalog(tmp_path: Path) -> BucketCatalog:
    given = {"bucket": f"file://{tmp_path}", "namespace": "a", "table": "t", "table_schema": "{}"}
    sink = BucketSink.model_validate(given)
    return BucketCatalog("test", sink, **sink.catalog_properties())


def test_columns_are_found_by_their_ids(catalog: BucketCatalog) -> None:
    table = catalog.create_table(("a", "t"), SCHEMA)
    target = write_target(table)
    stored = file_schema(table.schema(), [one.name for one in table.schema().fields])
    file = ParquetFile(target, stored, "one")
    file.write(pa.Table.from_pylist(ROWS, stored))
    file.write(pa.Table.from_pylist(ROWS[::-1], stored))
    file.close()
    with table.update_schema() as change:
        change.rename_column("place.a", "number")
        change.rename_column("list", "items")
        change.update_column("id", ice.LongType())
        change.update_column(("map", "value"), ice.DoubleType())
        change.add_column(("place", "more"), ice.StringType())
        change.add_column("new", ice.DateType())
        change.move_first("new")
    now = file_schema(table.schema(), [one.name for one in table.schema().fields])
    batches = list(stored_rows(table.io, file.path, now))
    assert [batch.num_rows for batch in batches] == [3, 3]
    found = pa.Table.from_batches(batches, now).to_pylist()
    first = {
        "new": None,
        "id": 1,
        "place": {"number": 1, "b": "x", "more": None},
        "items": [{"a": 2, "b": "y"}, None],
        "map": [("k", 0.5)],
    }
    assert found[0] == first
    assert found[1] == dict.fromkeys(first) | {"id": 2}
    assert found[2] == first | {
        "id": 3,
        "place": {"number": None, "b": None, "more": None},
        "items": [],
        "map": [("k", None), ("l", 1.5)],
    }
    assert found[3:] == found[2::-1]


def test_live_rows_keep_lists_of_structs_that_are_null(catalog: BucketCatalog) -> None:
    """PyIceberg's own scan makes empty ones of them."""
    table = catalog.create_table(("a", "t"), SCHEMA)
    names = [one.name for one in table.schema().fields]
    stored = file_schema(table.schema(), names)
    file = ParquetFile(write_target(table), stored, "one")
    file.write(pa.Table.from_pylist(ROWS, stored))
    file.close()
    task = FileScanTask(data_file(file.document(), table))
    (batch,) = live_rows(table.metadata, table.io, task, ["list", "place"])
    assert batch.schema.names == ["list", "place"]
    wanted = pa.Table.from_pylist(ROWS, stored).select(["list", "place"])
    assert batch.to_pylist() == wanted.to_pylist()


def test_files_without_ids_and_without_a_needed_column_are_left_to_others(
    catalog: BucketCatalog, tmp_path: Path
) -> None:
    table = catalog.create_table(("a", "t"), SCHEMA)
    wanted = file_schema(table.schema(), ["id"])
    for columns in (pa.schema([("id", pa.int32())]), wanted.remove(0)):
        path = tmp_path / "foreign.parquet"
        pq.write_table(pa.Table.from_pylist([{"id": 1}], columns), path)
        with pytest.raises(IcebergUnreadable):
            next(stored_rows(table.io, f"file://{path}", wanted))
