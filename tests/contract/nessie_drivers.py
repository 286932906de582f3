"""Nessie in the contract tests: the laws of Iceberg, on a branch."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import Catalog

import devservers
from dataflow_assets.connectors.iceberg import NessieSink, NessieSource
from dataflow_assets.contracts import Sink, Source
from devservers import Proxy
from tests.connectors.nessie.driver import connection
from tests.contract.iceberg_drivers import Iceberg, IcebergTable, IcebergUpsert, Lake
from tests.contract.remote import SECRET, proxied


class _Nessie(Lake):
    """A table of the test server, at either end; its catalog asks nobody who they are."""

    denied = r"n_\w+\.\w+ at \S+: .+; check the credentials and what they may do"

    def _make(self, request: pytest.FixtureRequest, columns: pa.Schema) -> None:
        self.request = request
        self.nessie: devservers.Nessie = request.getfixturevalue("nessie")
        self.server = self.nessie.store
        self.catalog: Catalog = request.getfixturevalue("nessie_catalog")
        self.namespace: str = request.getfixturevalue("nessie_namespace")
        self.catalog.create_table((self.namespace, self.table), columns)
        self.changes: dict[str, Any] = {}

    def _config(self) -> dict[str, Any]:
        return connection(self.nessie, self.namespace, self.table) | self.changes

    def through(self) -> tuple[Proxy, ...]:
        """The catalog and the object store."""
        ends = self.request.addfinalizer
        catalog = proxied(self.nessie.ports["nessie"], ends)
        store = proxied(self.server.ports["s3"], ends)
        self.changes["baseURL"] = f"http://127.0.0.1:{catalog.port}"
        self.changes["s3Endpoint"] = f"http://127.0.0.1:{store.port}"
        return catalog, store

    def _rename(self, old: str, new: str) -> None:
        """Past PyIceberg, which does not send `last-column-id`: Nessie asks for it."""
        schema = self.catalog.load_table((self.namespace, self.table)).schema()
        document: Any = json.loads(schema.model_dump_json())
        for column in document["fields"]:
            column["name"] = new if column["name"] == old else column["name"]
        document["schema-id"] = 1 if new == "renamed" else 0
        added = {"action": "add-schema", "schema": document}
        updates: Any = [{**added, "last-column-id": schema.highest_field_id}]
        current = {"action": "set-current-schema", "schema-id": document["schema-id"]}
        place = f"iceberg/v1/main/namespaces/{self.namespace}/tables/{self.table}"
        body: Any = {
            "requirements": [],
            "updates": [*(updates if new == "renamed" else []), current],
        }
        answer = requests.post(f"{self.nessie.uri}/{place}", json=body, timeout=30)
        answer.raise_for_status()

    def wrong_credentials(self) -> None:
        """Those of the object store."""
        self.changes["secretAccessKey"] = SECRET


class Nessie(_Nessie, Iceberg):
    type = "nessie"
    altered = Iceberg.altered.replace("iceberg:", "nessie:")

    def declare(self) -> Sink:
        return NessieSink.model_validate(self._config())


class NessieUpsert(_Nessie, IcebergUpsert):
    type = "nessie"
    altered = Iceberg.altered.replace("iceberg:", "nessie:")

    def declare(self) -> Sink:
        keyed = {"upsertMode": True, "conflictKey": "id"}
        return NessieSink.model_validate(self._config() | keyed)


class NessieTable(_Nessie, IcebergTable):
    type = "nessie"

    def declare(self) -> Source:
        return NessieSource.model_validate(self._config() | {"parallelReads": 2})
