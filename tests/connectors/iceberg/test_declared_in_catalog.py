"""Declared tables of an Iceberg REST catalog: ids, folder, and what readers by path see."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import StaticTable

import devservers
from dataflow_assets.connectors.iceberg.sink.declared_sinks import RestTableSink
from dataflow_assets.contracts import Run
from dataflow_assets.errors import PermanentError
from tests.connectors.iceberg.driver import TARGET, connection, ids, opened, pump

COLUMNS: list[dict[str, Any]] = [
    {"id": 7, "name": "id", "required": True, "type": "long"},
    {"id": 3, "name": "name", "required": False, "type": "string"},
]


@pytest.fixture
def sink(seaweedfs: devservers.SeaweedFS, namespace: str) -> RestTableSink:
    schema = {"type": "struct", "schema-id": 0, "fields": COLUMNS}
    own = {
        "tables_folder": f"s3://{seaweedfs.bucket}/{namespace}",
        "table_schema": json.dumps(schema),
        "partitions": ("bucket(2, id)",),
        "autoCreateTable": True,
    }
    return RestTableSink.model_validate(connection(seaweedfs, namespace, "orders") | own)


def test_the_ids_are_those_of_the_declaration_and_readers_by_path_see_all_rows(
    sink: RestTableSink, seaweedfs: devservers.SeaweedFS, catalog: Catalog, namespace: str
) -> None:
    session = opened(sink)
    for first in (0, 10):
        pump(sink, session, first, 10)
        table = catalog.load_table((namespace, "orders"))
        properties = {k: v for k, v in seaweedfs.catalog_properties().items() if "s3." in k}
        by_path = StaticTable.from_metadata(table.location(), properties)
        found = by_path.scan().to_arrow().column("id").to_pylist()
        assert sorted(found) == ids(catalog, namespace)
        assert len(found) == 2 * (first + 10)
    assert [(f.field_id, f.name) for f in table.schema().fields] == [(7, "id"), (3, "name")]
    assert [str(one.transform) for one in table.spec().fields] == ["bucket[2]"]
    assert table.location() == f"{sink.tables_folder}/orders"


def test_a_column_that_is_declared_later_is_added_with_its_id(
    sink: RestTableSink, catalog: Catalog, namespace: str
) -> None:
    pump(sink, opened(sink), 0, 5)
    late = {"id": 5, "name": "late", "required": False, "type": "int"}
    schema = {"type": "struct", "schema-id": 0, "fields": [*COLUMNS, late]}
    wider = sink.model_copy(update={"table_schema": json.dumps(schema)})
    pump(wider, opened(wider), 5, 5)
    table = catalog.load_table((namespace, "orders"))
    assert [one.field_id for one in table.schema().fields] == [7, 3, 5]
    assert len(table.scan().to_arrow()) == 20


def test_a_name_that_the_catalog_does_not_allow_is_an_error_for_people(
    sink: RestTableSink,
) -> None:
    with pytest.raises(PermanentError, match="only 'a-z', '0-9', '_', and '-' are allowed"):
        sink.model_copy(update={"table": "one+orders"}).open(TARGET, Run())
