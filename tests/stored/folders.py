"""The stores that are files: of a folder, of a table of Iceberg."""

from __future__ import annotations

import base64
import json
import tempfile
import uuid
from pathlib import Path
from typing import Any

from pyarrow.fs import FileSelector
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

import devservers
from dataflow_assets.connectors.files.table.commit_log import name_of
from dataflow_assets.connectors.iceberg.table.checkpoint import property_key
from dataflow_assets.contracts import Target
from tests.connectors.files.driver import bucket
from tests.stored.stores import Config, Row, Stores, of_replay, shown


class Folder(Stores):
    """A folder of the disk, and what a sink has in it beside its files."""

    type = "files"

    def make(self) -> None:
        within = tempfile.TemporaryDirectory(prefix="dataflow-stored-")
        self.request.addfinalizer(within.cleanup)
        self.folder = Path(within.name, "target")
        self.folder.mkdir()

    def names(self) -> dict[str, str]:
        return {"folder": str(self.folder)}

    def hashed(self, target: Target) -> dict[str, str]:
        return {"log": name_of(target), "log_of_replay": name_of(of_replay(target))}

    def config(self) -> Config:
        return {"path": str(self.folder)}

    def rows(self) -> list[Row]:
        found = (path.read_text().splitlines() for path in self.folder.glob("*.jsonl"))
        rows = [json.loads(line) for lines in found for line in lines]
        return sorted((row["id"], row["name"]) for row in rows)

    def dump(self) -> Any:
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_text() for path in files}

    def load(self, dumped: Any) -> None:
        for name, text in dumped.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


class Iceberg(Stores):
    """A table of a catalog and that of its rejected records.

    Their files are put back where they were: manifests name them by their whole paths. Tables of
    other names are made of them, with the snapshots and the properties of the old ones.
    """

    type = "iceberg"

    def make(self) -> None:
        self.server: devservers.SeaweedFS = self.request.getfixturevalue("seaweedfs")
        self.catalog: Catalog = self.request.getfixturevalue("catalog")
        self.namespace: str = self.request.getfixturevalue("namespace")
        self.files = bucket(self.server)[0]

    def names(self) -> dict[str, str]:
        found = self.catalog.list_tables(self.namespace)
        tables = {name: self.catalog.load_table((_, name)) for _, name in found}
        return {f"{name}_uuid": str(one.metadata.table_uuid) for name, one in tables.items()}

    def hashed(self, target: Target) -> dict[str, str]:
        return {"property": property_key(target), "of_replay": property_key(of_replay(target))}

    def config(self) -> Config:
        return {
            "catalogURI": self.server.uri,
            "warehouse": self.server.warehouse,
            "namespace": self.namespace,
            "table": "target",
            "oauth2ClientID": self.server.access_key,
            "oauth2ClientSecret": self.server.secret_key,
            "s3Endpoint": self.server.s3_endpoint,
            "s3Region": self.server.region,
            "accessKey": self.server.access_key,
            "secretAccessKey": self.server.secret_key,
            "autoCreateTable": True,
        }

    def rows(self) -> list[Row]:
        table = self.catalog.load_table((self.namespace, "target"))
        found = table.scan().to_arrow().to_pylist()
        return sorted((row["id"], row["name"]) for row in found)

    def dump(self) -> Any:
        tables = self.catalog.list_tables(self.namespace)
        return {name: self._dumped(self.catalog.load_table((_, name))) for _, name in tables}

    def _dumped(self, table: Table) -> Config:
        below = FileSelector(table.location().removeprefix("s3://"), recursive=True)
        paths = [one.path for one in self.files.get_file_info(below) if one.is_file]
        return {
            "metadata": json.loads(table.metadata.model_dump_json()),
            "files": {
                path: base64.b64encode(self.files.open_input_stream(path).readall()).decode()
                for path in paths
                if not path.endswith(".json")
            },
        }

    def load(self, dumped: Any) -> None:
        for name, one in dumped.items():
            for path, content in one["files"].items():
                with self.files.open_output_stream(path) as file:
                    file.write(base64.b64decode(content))
            self._made(name, one["metadata"])

    def _made(self, name: str, stored: Config) -> None:
        was = TableMetadataUtil.parse_obj(stored | {"table-uuid": str(uuid.uuid4())})
        made = self.catalog.create_table(
            (self.namespace, name), was.schema(), partition_spec=was.spec()
        )
        assert made.schema() == was.schema()
        properties = shown(json.dumps(was.properties), self.names())
        now = made.metadata.last_updated_ms  # no catalog takes older snapshots
        snapshots = [
            one.model_copy(update={"timestamp_ms": now + n}) for n, one in enumerate(was.snapshots)
        ]
        head = {"ref-name": "main", "type": "branch", "snapshot-id": was.current_snapshot_id}
        updates: list[TableUpdate] = [
            SetPropertiesUpdate(updates=json.loads(properties)),
            *(AddSnapshotUpdate(snapshot=one) for one in snapshots),
            SetSnapshotRefUpdate.model_validate(head),
        ]
        self.catalog.commit_table(made, (), tuple(updates))


class IcebergUpsert(Iceberg):
    """Its rows are merged by their key, into files that are written anew."""

    def config(self) -> Config:
        return super().config() | {"upsertMode": True, "conflictKey": "id"}
