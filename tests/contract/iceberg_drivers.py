"""Iceberg in the contract tests: tables as a source and as targets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

import devservers
from dataflow_assets.connectors.iceberg import IcebergSink, IcebergSource
from dataflow_assets.connectors.iceberg.table.checkpoint import property_key
from dataflow_assets.contracts import Sink, Source, Target
from devservers import Proxy
from tests import arrivals
from tests.connectors.iceberg.driver import connection
from tests.contract.drivers import (
    Row,
    SinkDriver,
    SourceDriver,
    pairs,
)
from tests.contract.remote import SECRET, Remote, proxied


class Lake(Remote):
    """A table of the test catalog, at either end."""

    denied = r"n_\w+\.\w+ at \S+: .+; check the credentials and what they may do"
    table: ClassVar[str]

    def _make(self, request: pytest.FixtureRequest, columns: pa.Schema) -> None:
        self.request = request
        self.server: devservers.SeaweedFS = request.getfixturevalue("seaweedfs")
        self.catalog: Catalog = request.getfixturevalue("catalog")
        self.namespace: str = request.getfixturevalue("namespace")
        self.catalog.create_table((self.namespace, self.table), columns)
        self.changes: dict[str, Any] = {}

    def _config(self) -> dict[str, Any]:
        return connection(self.server, self.namespace, self.table) | self.changes

    def through(self) -> tuple[Proxy, ...]:
        """The catalog and the object store."""
        ends = self.request.addfinalizer
        catalog, store = (proxied(self.server.ports[name], ends) for name in ("iceberg", "s3"))
        self.changes["catalogURI"] = self.server.uri.replace(
            f":{catalog.upstream}", f":{catalog.port}"
        )
        self.changes["s3Endpoint"] = f"http://127.0.0.1:{store.port}"
        return catalog, store

    def wrong_credentials(self) -> None:
        self.changes["oauth2ClientSecret"] = SECRET

    def alter(self) -> None:
        self._rename("name", "renamed")

    def mend(self) -> None:
        self._rename("renamed", "name")

    def drop(self) -> None:
        self.catalog.drop_table((self.namespace, self.table))

    def _rename(self, old: str, new: str) -> None:
        with self.catalog.load_table((self.namespace, self.table)).update_schema() as update:
            update.rename_column(old, new)


class Iceberg(SinkDriver, Lake):
    type = "iceberg"
    table = "target"
    partitions: ClassVar[tuple[tuple[str, str], ...]] = ()
    down = r"cannot \w[^:]+ n_\w+\.target at \S+: no answer from 127\.0\.0\.1:\d+: "
    altered = (
        r"stops at t, partition \d, offset \d+, for iceberg:n_\w+:target: decode: Object contains "
        r"unknown field `name`; the flow goes on once it can be stored: add the column to the table"
    )
    dropped = (
        r"n_\w+\.target at \S+: NoSuchTableError: .+; create the table again, or set autoCreateT"
        r"|table n_\w+\.target does not exist: create it, or set autoCreateTable: true"
    )
    in_task = "iceberg.staged"
    failpoints: ClassVar[tuple[str, ...]] = (
        "drain.begun",
        "iceberg.begin",
        "iceberg.staged",
        "drain.passed",
        "iceberg.before-commit",
        "iceberg.after-commit",
        "drain.finished",
    )

    def __init__(self, request: pytest.FixtureRequest) -> None:
        id_ = pa.field("id", pa.int64(), nullable=False)
        self._make(request, pa.schema([id_, ("name", pa.string())]))
        with self.catalog.load_table((self.namespace, self.table)).update_spec() as update:
            for name, transform in self.partitions:
                update.add_field(name, transform)

    def declare(self) -> Sink:
        return IcebergSink.model_validate(self._config())

    def busy(self, request: bytes) -> bool:
        return request.startswith(b"PUT ") and b".parquet" in request

    def final(self, request: bytes) -> bool:
        return request.startswith(b"POST ") and b"add-snapshot" in request

    def rows(self) -> list[Row]:
        found = self.catalog.load_table((self.namespace, "target")).scan().to_arrow()
        return sorted((row["id"], row["name"]) for row in found.to_pylist())

    def arrived(self) -> list[list[Row]]:
        """Of an unpartitioned table: rows of one commit are in one file for each slice."""
        return [pairs(arrivals.iceberg(self.catalog.load_table((self.namespace, "target"))))]

    def rejected(self) -> list[str]:
        found = self.catalog.load_table((self.namespace, "target_rejected")).scan().to_arrow()
        reasons = {row["id"]: str(row["reason"]) for row in found.to_pylist()}
        return sorted(reasons.values())

    def rebuild(self, rows: Sequence[Row]) -> None:
        """With the properties of the old one, as a copy of its metadata has them."""
        name = (self.namespace, self.table)
        old = self.catalog.load_table(name)
        schema, kept = old.schema().as_arrow(), old.properties
        self.catalog.drop_table(name)
        made = self.catalog.create_table(name, schema, properties=kept)
        with made.update_spec() as update:
            for column, transform in self.partitions:
                update.add_field(column, transform)
        if rows:
            found = [{"id": id_, "name": text} for id_, text in rows]
            made.append(pa.Table.from_pylist(found, made.schema().as_arrow()))

    def lose(self, target: Target) -> None:
        with self.catalog.load_table((self.namespace, self.table)).transaction() as change:
            change.remove_properties(property_key(target))

    def move(self, target: Target, offset: int) -> None:
        table = self.catalog.load_table((self.namespace, self.table))
        stored = json.loads(table.properties[property_key(target)])
        stored["positions"]["0"] = offset
        with table.transaction() as change:
            change.set_properties({property_key(target): json.dumps(stored)})


class IcebergPartitioned(Iceberg):
    variant = "partitioned"
    partitions = (("name", "truncate[5]"), ("id", "bucket[3]"))

    def arrived(self) -> list[list[Row]]:
        return []


class IcebergUpsert(Iceberg):
    """Rows merged by their key, into partitions that files are rewritten in."""

    variant = "upsert"
    upserts = True
    partitions = (("id", "bucket[2]"),)
    failpoints = (
        "drain.begun",
        "iceberg.begin",
        "iceberg.staged",
        "drain.passed",
        "iceberg.merging",
        "iceberg.rewritten",
        "iceberg.merged",
        "iceberg.before-commit",
        "iceberg.after-commit",
        "iceberg.moved",
        "drain.finished",
    )

    def arrived(self) -> list[list[Row]]:
        return []

    def declare(self) -> Sink:
        keyed = {"upsertMode": True, "conflictKey": "id"}
        return IcebergSink.model_validate(self._config() | keyed)


class IcebergTable(SourceDriver, Lake):
    """Every seed is two snapshots of a file each, so that reads begin and end inside both."""

    type = "iceberg"
    columns = True
    table = "source"
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    down = r"cannot \w[^:]+ n_\w+\.source at \S+: no answer from 127\.0\.0\.1:\d+: "
    altered = (
        r"the source delivers columns that the target lacks: renamed; the target has id, name: "
        r"add them, or set unknownFields: ignore"
    )
    dropped = r"table n_\w+\.source does not exist at \S+: nothing can be read before"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._make(request, self.schema)

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        assert not raw, "a table holds no raw messages"
        table = self.catalog.load_table((self.namespace, self.table))
        for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            found = [{"id": id_, "name": name} for id_, name in half]
            table.append(pa.Table.from_pylist(found, self.schema))

    def declare(self) -> Source:
        return IcebergSource.model_validate(self._config() | {"parallelReads": 2})

    def busy(self, request: bytes) -> bool:
        return request.startswith(b"GET ") and b".parquet" in request

    final = busy
