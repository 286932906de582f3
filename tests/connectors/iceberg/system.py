"""Tables of Iceberg as ends of whole flows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa

import devservers
from tests.systems import Change, Config, Row, System, state


class Iceberg(System):
    type = "iceberg"
    upsert: ClassVar[Config | None] = {"upsertMode": True, "conflictKey": "id"}

    def at(self, role: str, config: Config) -> Config:
        server: devservers.SeaweedFS = self.request.getfixturevalue("seaweedfs")
        self.catalog = self.request.getfixturevalue("catalog")
        namespace = self.request.getfixturevalue("namespace")
        return {
            **config,
            "catalogURI": server.uri,
            "warehouse": server.warehouse,
            "namespace": namespace,
            "table": role,
            "oauth2ClientID": server.access_key,
            "oauth2ClientSecret": server.secret_key,
            "s3Endpoint": server.s3_endpoint,
            "s3Region": server.region,
            "accessKey": server.access_key,
            "secretAccessKey": server.secret_key,
        }

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        rows = state(changes)
        kinds = {"id": pa.int64(), "name": pa.string(), "price": pa.float64(), "ok": pa.bool_()}
        kinds["updated_at"] = pa.timestamp("us", "UTC")
        schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in changes[0].row])
        place = (config["namespace"], config["table"])
        table = self.catalog.create_table(place, schema)
        for half in (rows[::2], rows[1::2]):  # two snapshots
            table.append(pa.Table.from_pylist(half, schema))

    def rows(self, config: Config) -> list[Row]:
        table = self.catalog.load_table((config["namespace"], config["table"]))
        found: list[Row] = table.scan().to_arrow().to_pylist()
        return found

    def declared(self, config: Config) -> dict[str, str]:
        table = self.catalog.load_table((config["namespace"], config["table"]))
        return {
            column.name: self.spelled(str(column.field_type)) for column in table.schema().fields
        }

    @staticmethod
    def spelled(kind: str) -> str:
        return re.sub(r"\d+: ", "", kind)  # field ids
