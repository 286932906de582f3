"""Source connectors of Kafka Connect as ends of whole flows."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import devservers
from dataflow_assets.spark.process import LOOPBACK
from tests.connectors.postgresql.system import PostgresqlCdc
from tests.systems import Change, Config, System, encoded_row


class KafkaConnect(System):
    """The lines of a file, which a connector of Kafka itself delivers, or a table that Debezium
    follows; a source alone."""

    type = "kafkaConnect"
    tells_changes = True
    sends_nulls = False

    def at(self, role: str, config: Config) -> Config:
        folder = Path(self.request.getfixturevalue("tmp_path"), f"connect-{uuid.uuid4().hex[:6]}")
        folder.mkdir()
        follows = "PostgresConnector" in config.get("class", "")
        self.table = PostgresqlCdc(self.request) if follows else None
        here = self._table(role, config, folder) if follows else _lines_of_a_file(folder)
        return {**config, **here, "spool": str(folder / "spool"), "tasksMax": 1, "envelope": False}

    def _table(self, role: str, config: Config, folder: Path) -> Config:
        from tests.connectors.kafka_connect.driver import plugins

        assert self.table is not None
        self.place = self.table.at(role, {"snapshotMode": "initial"})
        server: devservers.PostgreSQL = self.request.getfixturevalue("postgresql")
        connector = {
            **config["config"],
            "database.hostname": LOOPBACK,
            "database.port": server.port,
            "database.user": "postgres",
            "database.dbname": "postgres",
            "slot.name": self.place["slotName"],
            "publication.name": self.place["publicationName"],
            "table.include.list": self.place["tables"][0],
        }
        here = {"plugins": [plugins(folder, "connect-debezium")], "heap": "256m"}
        return {**here, "credentials": "{}", "config": connector}

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        if self.table is not None:
            self.table.change(self.place, changes)
            return
        assert all(change.op != "delete" for change in changes), "no record is null"
        lines = [encoded_row(config, change.row) + b"\n" for change in changes]
        Path(config["config"]["file"]).write_bytes(b"".join(lines))


def _lines_of_a_file(folder: Path) -> Config:
    from tests.connectors.kafka_connect.driver import plugins

    connector = {"file": str(folder / "lines.jsonl"), "topic": "lines"}
    here = {"plugins": [plugins(folder)], "heap": "128m"}
    return {**here, "class": "FileStreamSourceConnector", "config": connector}
