"""Declared tables of an Iceberg REST catalog: ids, folder, and what readers by path see."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, StaticTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertCreate
from pyiceberg.types import IntegerType

import devservers
from dataflow_assets.connectors.iceberg import hint
from dataflow_assets.connectors.iceberg.client import BoundedCatalog
from dataflow_assets.contracts import Run
from dataflow_assets.errors import PermanentError
from dataflow_assets.languages.tableflow.declared_sinks import RestTableSink
from tests.connectors.iceberg.driver import TARGET, connection, expected, ids, opened, pump

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


def test_a_driver_that_was_paused_behind_its_commit_leaves_the_newest_hint(
    sink: RestTableSink, seaweedfs: devservers.SeaweedFS, catalog: Catalog, namespace: str
) -> None:
    session = opened(sink)
    pump(sink, session, 0, 5)
    paused = catalog.load_table((namespace, "orders"))
    pump(sink, session, 5, 5)
    hint.leave(paused)
    by_path = StaticTable.from_metadata(paused.location(), seaweedfs.catalog_properties())
    assert len(by_path.scan().to_arrow()) == 20


def test_a_column_that_was_added_meanwhile_is_in_the_hint(
    sink: RestTableSink, seaweedfs: devservers.SeaweedFS, catalog: Catalog, namespace: str
) -> None:
    """Which changes the schema alone, and no sequence number."""
    pump(sink, opened(sink), 0, 5)
    paused = catalog.load_table((namespace, "orders"))
    _widen(catalog, paused.name())
    hint.leave(paused)
    by_path = StaticTable.from_metadata(paused.location(), seaweedfs.catalog_properties())
    assert by_path.schema().column_names == ["id", "name", "late"]


def test_an_answer_that_is_cut_short_behind_a_commit_is_a_warning(
    sink: RestTableSink,
    catalog: Catalog,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def cut(_: object) -> None:
        TableResponse.model_validate_json('{"metadata": {')

    pump(sink, opened(sink), 0, 5)
    table = catalog.load_table((namespace, "orders"))
    monkeypatch.setattr(table.catalog, "load_table", cut)
    hint.leave(table)
    assert "its version-hint.text is late: 1 validation error for TableResponse" in caplog.text


@pytest.mark.timeout(60)
def test_others_that_commit_all_the_time_do_not_hold_a_driver_up(
    sink: RestTableSink,
    catalog: Catalog,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def changed(name: tuple[str, ...]) -> Table:
        table = load(name)
        with table.transaction() as change, change.update_snapshot().fast_append():
            pass  # no files
        return table

    pump(sink, opened(sink), 0, 5)
    table = catalog.load_table((namespace, "orders"))
    load = table.catalog.load_table
    monkeypatch.setattr(table.catalog, "load_table", changed)
    hint.leave(table)
    assert "is late: others commit all the time" in caplog.text


LOST = ["v3.metadata.json", "synced-07.metadata.json", hint.HINT]


@pytest.mark.parametrize("name", [*LOST, "00000-17-made.metadata.json"])
def test_a_table_in_the_folder_is_noticed_also_without_its_hint(
    sink: RestTableSink, seaweedfs: devservers.SeaweedFS, name: str
) -> None:
    """What a driver has left that died before the table was there is no table."""
    path = f"{sink.tables_folder}/orders/metadata/{name}"
    with load_file_io(seaweedfs.catalog_properties()).new_output(path).create() as file:
        file.write(b"{}")
    if name not in LOST:
        assert opened(sink).table.schema() is not None
        return
    with pytest.raises(PermanentError, match="holds a table of a flow that had no catalog"):
        opened(sink)


Commit = Callable[..., CommitTableResponse]


def _widen(catalog: Catalog, name: tuple[str, ...]) -> None:
    with catalog.load_table(name).update_schema() as change:
        change.add_column("late", IntegerType())


def test_a_table_that_another_driver_makes_at_once_is_used(
    sink: RestTableSink, catalog: Catalog, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are in the folder when this one, which saw no table, looks into the folder."""
    made = BoundedCatalog.first

    def first(self: BoundedCatalog, identifier: tuple[str, ...], metadata: TableMetadata) -> Table:
        monkeypatch.undo()
        pump(sink, opened(sink), 0, 5)
        return made(self, identifier, metadata)

    monkeypatch.setattr(BoundedCatalog, "first", first)
    session = opened(sink)
    assert BoundedCatalog.first is made
    pump(sink, session, 5, 5)
    assert ids(catalog, namespace) == expected(10)


def test_a_table_that_another_driver_has_changed_at_once_is_not_dropped(
    sink: RestTableSink, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, namespace: str
) -> None:
    """Its file has a column more; this one's is older, and is refused."""
    commit: Commit = BoundedCatalog.commit_table

    def changed(self: BoundedCatalog, table: Table, requirements: Any, updates: Any) -> Any:
        found = commit(self, table, requirements, updates)
        if AssertCreate() in requirements:
            _widen(catalog, table.name())
        return found

    monkeypatch.setattr(BoundedCatalog, "commit_table", changed)
    with pytest.raises(PermanentError, match=r"late .* is in the table and cannot be dropped"):
        opened(sink)
    assert catalog.load_table((namespace, "orders")).schema().column_names == ["id", "name", "late"]


@pytest.mark.parametrize("busy", [False, True], ids=["left alone", "changed"])
def test_a_catalog_that_gives_other_ids_is_refused(
    sink: RestTableSink,
    catalog: Catalog,
    monkeypatch: pytest.MonkeyPatch,
    namespace: str,
    busy: bool,
) -> None:
    """The new table is dropped again, unless somebody else has changed it since."""

    def made(self: BoundedCatalog, table: Table, *_: Any) -> CommitTableResponse:
        schema = Schema.model_validate({"type": "struct", "schema-id": 0, "fields": COLUMNS})
        found = self.create_table(table.name(), schema)
        if busy:
            _widen(catalog, table.name())
        where = {"metadata": found.metadata, "metadata-location": found.metadata_location}
        return CommitTableResponse.model_validate(where)

    monkeypatch.setattr(BoundedCatalog, "commit_table", made)
    with pytest.raises(PermanentError, match="other ids than the file declares"):
        opened(sink)
    assert catalog.table_exists((namespace, "orders")) == busy
