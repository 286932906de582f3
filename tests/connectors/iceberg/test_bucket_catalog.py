"""Tables without a catalog: of many drivers one commits, and nobody commits where others were."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs
from pyiceberg import exceptions as ice
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.update import (
    AssertTableUUID,
    SetPropertiesUpdate,
    update_table_metadata,
)
from pyiceberg.types import LongType, NestedField

import devservers
from dataflow_assets.connectors.iceberg import hint, metadata_files
from dataflow_assets.connectors.iceberg.bucket_catalog import BucketCatalog
from dataflow_assets.connectors.iceberg.client import REMOTE_FILES
from dataflow_assets.connectors.iceberg.table.commit import Committer, TableChange
from dataflow_assets.connectors.iceberg.table.data_files import (
    ParquetFile,
    data_file,
    write_target,
)
from dataflow_assets.connectors.iceberg.types import file_schema
from dataflow_assets.errors import PermanentError
from dataflow_assets.languages.tableflow.declared_sinks import BucketSink
from tests.connectors.files.driver import bucket as fresh_bucket

NAME = ("a", "b", "orders+1")
SCHEMA = Schema(NestedField(1, "id", LongType()))


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "disk":
        yield {"bucket": f"file://{tmp_path}"}
        return
    server: devservers.SeaweedFS = request.getfixturevalue("seaweedfs")
    store, name = fresh_bucket(server)
    yield {
        "bucket": f"s3://{name}/p",
        "s3_endpoint": server.s3_endpoint,
        "s3_region": server.region,
        "access_key": server.access_key,
        "secret_access_key": server.secret_key,
    }
    store.delete_dir(name)


def _catalog(place: dict[str, Any]) -> BucketCatalog:
    """As another driver has it: it knows nothing of what others did."""
    sink = BucketSink(**place, namespace="a.b", table="orders+1", table_schema="{}")
    files = REMOTE_FILES if sink.on_s3 else {}
    return BucketCatalog("test", sink, **sink.catalog_properties(), **files)


def test_of_many_drivers_each_commit_is_made_once(place: dict[str, Any]) -> None:
    """Twenty threads count in one property, each on what it has seen."""
    _catalog(place).create_table(NAME, SCHEMA)
    conflicts = []

    def count(_: int) -> None:
        catalog = _catalog(place)
        while True:
            number, metadata = catalog._newest(NAME)
            seen = int(metadata.properties.get("count", "0"))
            following = update_table_metadata(metadata, (_property(seen + 1),))
            if catalog.metadata_files.put(NAME, number + 1, following):
                return
            conflicts.append(seen)

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(count, range(60)))
    table = _catalog(place).load_table(NAME)
    assert table.properties["count"] == "60"
    assert table.metadata_location.endswith("/v61.metadata.json")
    assert conflicts


def _property(count: int) -> SetPropertiesUpdate:
    return SetPropertiesUpdate(updates={"count": str(count)})


def _set(catalog: BucketCatalog, table: Table, count: int) -> None:
    same = AssertTableUUID(uuid=table.metadata.table_uuid)
    catalog.commit_table(table, (same,), (_property(count),))


def test_a_folder_that_is_made_while_it_is_listed_is_listed(tmp_path: Path) -> None:
    """Arrow looks twice where it finds none, and contradicts itself when it is there by then."""
    folder = tmp_path / "metadata"
    disk = fs.LocalFileSystem()

    def listed(selector: fs.FileSelector) -> list[fs.FileInfo]:
        if not folder.exists():
            folder.mkdir()
            (folder / "v1.metadata.json").touch()
            raise FileNotFoundError(selector.base_dir)
        found: list[fs.FileInfo] = disk.get_file_info(selector)
        return found

    io = PyArrowFileIO()
    io.fs_by_scheme = lambda *_: SimpleNamespace(get_file_info=listed)
    found = metadata_files.in_folder(io, str(folder))
    assert [one.base_name for one in found] == ["v1.metadata.json"]


def test_of_many_who_make_a_table_one_does(place: dict[str, Any]) -> None:
    barrier = threading.Barrier(8)

    def make(_: int) -> str:
        barrier.wait()
        return str(_catalog(place).make(NAME, SCHEMA, {}).metadata.table_uuid)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(make, range(8)))) == 1


def test_a_driver_that_was_away_for_long_finds_the_newest_and_no_free_number(
    place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old metadata files are emptied, and never gone."""
    monkeypatch.setattr(metadata_files, "KEPT", 3)
    ours, away = _catalog(place), _catalog(place)
    ours.create_table(NAME, SCHEMA)
    seen = away.load_table(NAME)
    for number in range(9):
        _set(ours, ours.load_table(NAME), count=number)
    folder = f"{ours.load_table(NAME).location()}/metadata"
    assert away.metadata_files.read(NAME, 2) == b"6"
    assert not away.metadata_files.put(NAME, 2, seen.metadata)
    assert away.load_table(NAME).metadata_location == f"{folder}/v10.metadata.json"
    without_hint = _catalog(place)
    monkeypatch.setattr(without_hint.metadata_files, "_hinted_number", lambda _: 1)
    assert without_hint.load_table(NAME).properties["count"] == "8"


def test_a_reader_by_path_sees_the_newest(place: dict[str, Any]) -> None:
    catalog = _catalog(place)
    table = catalog.create_table(NAME, SCHEMA)
    _set(catalog, table, count=1)
    found = StaticTable.from_metadata(table.location(), catalog.properties)
    assert found.properties["count"] == "1"


def test_a_hint_that_is_late_or_broken_does_no_harm(place: dict[str, Any]) -> None:
    catalog = _catalog(place)
    table = catalog.create_table(NAME, SCHEMA)
    _set(catalog, table, count=1)
    for text in (b"1", b"", b"none", b"7"):
        catalog.metadata_files._write(f"{table.location()}/metadata/{hint.HINT}", text)
        assert _catalog(place).load_table(NAME).properties["count"] == "1"


def test_a_lost_hint_and_lost_old_files_do_not_lead_to_a_new_table(place: dict[str, Any]) -> None:
    """As a rule of the bucket leaves it that deletes what is old."""
    catalog = _catalog(place)
    table = catalog.create_table(NAME, SCHEMA)
    for number in range(3):
        _set(catalog, catalog.load_table(NAME), count=number)
    for name in (hint.HINT, "v1.metadata.json", "v3.metadata.json"):
        table.io.delete(f"{table.location()}/metadata/{name}")
    found = _catalog(place).make(NAME, SCHEMA, {})
    assert (found.metadata.table_uuid, found.properties["count"]) == (
        table.metadata.table_uuid,
        "2",
    )


def test_a_table_of_another_program_is_not_written_over(place: dict[str, Any]) -> None:
    catalog = _catalog(place)
    folder = f"{BucketSink(**place, namespace='a.b', table='orders+1', table_schema='{}').bucket}"
    catalog.metadata_files._write(
        f"{folder}/{'/'.join(NAME)}/metadata/00003-0a.metadata.json", b"{}"
    )
    with pytest.raises(PermanentError, match="of a table that another program has made there"):
        catalog.make(NAME, SCHEMA, {})


def test_a_hint_is_never_left_behind(
    place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that is slow writes its hint after another one has committed and written its own."""
    slow, other = _catalog(place), _catalog(place)
    slow.create_table(NAME, SCHEMA)
    files = slow.metadata_files
    written = files._write

    def later(path: str, content: bytes) -> None:
        if path.endswith(hint.HINT):
            monkeypatch.setattr(files, "_write", written)
            for number in range(3):
                _set(other, other.load_table(NAME), count=number)
        written(path, content)

    monkeypatch.setattr(files, "_write", later)
    _set(slow, slow.load_table(NAME), count=10)
    assert _catalog(place).metadata_files._hinted_number(NAME) == 5


def test_a_commit_on_the_disk_waits_for_its_own_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file and folder that a commit makes is durable before its number is taken."""
    durable: set[str] = set()

    def seen(path: Path) -> None:
        durable.add(str(path))

    def no_sync() -> None:
        raise AssertionError("all of the machine's files were waited for")

    monkeypatch.setattr("os.sync", no_sync)
    for module in ("sdk.durable_files", "connectors.iceberg.metadata_files"):
        monkeypatch.setattr(f"dataflow_assets.{module}.sync", seen)
    linked = Path.hardlink_to
    missing: list[str] = []

    def link(self: Path, target: Path) -> None:
        held = [one for one in tmp_path.rglob("*") if one != target]
        missing.extend(str(one) for one in held if one.suffix in (".parquet", ".avro"))
        missing[:] = [one for one in missing if one not in durable]
        linked(self, target)

    monkeypatch.setattr(Path, "hardlink_to", link)
    table = _catalog({"bucket": f"file://{tmp_path}"}).create_table(NAME, SCHEMA)
    committer = Committer(_catalog({"bucket": f"file://{tmp_path}"}), table)
    file = ParquetFile(write_target(table), file_schema(SCHEMA, ["id"]), "one")
    file.write(pa.table({"id": [1]}).cast(file_schema(SCHEMA, ["id"])))
    file.close()
    committer.commit(TableChange("k", lambda _: "v", files=[data_file(file.document(), table)]))
    assert missing == []
    names = {Path(one).name for one in durable}
    assert {"data", "metadata", "orders+1"} <= names
    assert any(name.endswith(".parquet") for name in names)


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_store_that_refuses_stops_the_flow_with_one_sentence(place: dict[str, Any]) -> None:
    _catalog(place).create_table(NAME, SCHEMA)
    table = _catalog(place).load_table(NAME)
    wrong = _catalog(place)
    wrong.load_table(NAME)
    refused = place | {"secret_access_key": "wrong"}
    sink = BucketSink(**refused, namespace="a.b", table="orders+1", table_schema="{}")
    wrong.metadata_files._bucket = sink
    with pytest.raises(PermanentError, match=r"HTTP 403.*check the credentials"):
        _set(wrong, table, count=1)


def test_a_table_that_is_not_there(place: dict[str, Any]) -> None:
    assert _catalog(place).table(NAME) is None
    with pytest.raises(ice.NoSuchTableError):
        _catalog(place).load_table(NAME)
