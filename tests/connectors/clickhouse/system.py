"""Tables of ClickHouse as ends of whole flows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from tests.systems import Change, Config, Row, System, state, without_columns


class Clickhouse(System):
    type = "clickhouse"
    upsert: ClassVar[Config | None] = {
        "upsertMode": True,
        "conflictKey": "id",
        "deleteMode": "hard",
    }

    def at(self, role: str, config: Config) -> Config:
        from dataflow_assets.connectors.clickhouse import client

        dsn = self.request.getfixturevalue("clickhouse").dsn(
            self.request.getfixturevalue("database")
        )
        self.client = client.connect(dsn, "tests")
        self.request.addfinalizer(self.client.close)
        return {**config, "connectionString": dsn, "table": role}

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        from dataflow_assets.connectors.clickhouse.client import quote

        kinds = {"id": "Int64", "name": "String", "price": "Float64", "ok": "Bool"}
        kinds["updated_at"] = "DateTime64(6, 'UTC')"
        names = list(changes[0].row)
        listed = ", ".join(f"{quote(name)} {kinds.get(name, 'Int64')}" for name in names)
        self.client.command(
            f"CREATE TABLE {config['table']} ({listed}) ENGINE = ReplacingMergeTree ORDER BY id"
        )
        rows = [list(row.values()) for row in state(changes)]
        self.client.insert(config["table"], rows, names)

    def rows(self, config: Config) -> list[Row]:
        final = " FINAL" if config.get("upsertMode") else ""
        found = self.client.query(f"SELECT * FROM {config['table']}{final}").named_results()
        return [without_columns(row, ("_version", "_deleted", "created_at")) for row in found]

    def declared(self, config: Config) -> dict[str, str]:
        found = self.client.query(f"DESCRIBE TABLE {config['table']}").named_results()
        return {row["name"]: _commented(row["type"], row["comment"]) for row in found}

    @staticmethod
    def spelled(kind: str) -> str:
        return kind.replace("`", "")


def _commented(kind: str, comment: str) -> str:
    kind = re.sub(r"\n\s+", "", kind)  # of tuples
    return f"{kind} COMMENT '{comment}'" if comment else kind
