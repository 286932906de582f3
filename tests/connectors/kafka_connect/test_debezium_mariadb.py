"""Debezium for MariaDB: snapshot, inserts, updates and deletes, each once, whatever is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import devservers
from dataflow_assets.spark.process import LOOPBACK
from devservers.unpacked import unpacked
from tests.connectors.kafka_connect.driver import Config, Flow, source
from tests.drained import drain_apart, follow_apart

pytestmark = [pytest.mark.heavy, pytest.mark.crash, pytest.mark.full]

CLASS = "io.debezium.connector.mariadb.MariaDbConnector"
SNAPSHOT = 500


class Followed:
    """A table `rows` of a database of its own, and what has happened to it, in order."""

    def __init__(self, server: devservers.MariaDB, database: str) -> None:
        self._server, self._database = server, database
        self._run("CREATE TABLE `rows` (id BIGINT PRIMARY KEY, name VARCHAR(20))")
        values = ", ".join(f"({number}, 'first')" for number in range(SNAPSHOT))
        self._run(f"INSERT INTO `rows` VALUES {values}")
        self.expected: list[tuple[str, int, Any]] = [
            ("r", number, "first") for number in range(SNAPSHOT)
        ]

    def _run(self, statement: str) -> None:
        self._server.execute(statement, database=self._database)

    def change(self, number: int) -> None:
        """A new row, which is changed and deleted, each in a transaction of its own."""
        key = SNAPSHOT + number
        self._run(f"INSERT INTO `rows` VALUES ({key}, 'new')")
        self._run(f"UPDATE `rows` SET name = 'changed' WHERE id = {key}")
        self._run(f"DELETE FROM `rows` WHERE id = {key}")
        self.expected += [("c", key, "new"), ("u", key, "changed"), ("d", key, "changed")]

    def insert(self, first: int, rows: int) -> None:
        """In one transaction."""
        keys = range(SNAPSHOT + first, SNAPSHOT + first + rows)
        self._run(f"INSERT INTO `rows` VALUES {', '.join(f'({key}, NULL)' for key in keys)}")
        self.expected += [("c", key, None) for key in keys]

    def source(self, folder: Path) -> Config:
        """Of a manifest."""
        plugins = folder / "plugins"
        plugins.mkdir()
        (plugins / "mariadb").symlink_to(unpacked("connect-debezium-mariadb"))
        config = {
            "database.hostname": LOOPBACK,
            "database.port": self._server.port,
            "database.user": self._server.user,
            "database.password": self._server.password,
            "database.server.id": 5400,
            "database.include.list": self._database,
            "table.include.list": f"{self._database}.rows",
            "topic.prefix": "shop",
            "include.schema.changes": False,
            "tombstones.on.delete": False,
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(folder / "history"),
            "poll.interval.ms": 50,
            "max.batch.size": 91,
            "max.queue.size": 182,
        }
        reading = source(folder, CLASS, config, tasksMax=1, heap="256m")
        return reading | {"plugins": [str(plugins)]}


@pytest.fixture
def table(mariadb: devservers.MariaDB, mysql_database: str) -> Followed:
    return Followed(mariadb, mysql_database)


def _changes(flow: Flow) -> Iterator[tuple[str, int, Any]]:
    for row in flow.rows:
        record = row["record"]
        image = record["before"] if record["op"] == "d" else record["after"]
        yield record["op"], image["id"], image["name"]


def test_each_change_once(table: Followed, tmp_path: Path) -> None:
    """The process is killed inside of the snapshot, then behind each part of the log."""
    flow = Flow(tmp_path, table.source(tmp_path), maxRecordsPerBatch=100)
    assert drain_apart(flow.manifest, failpoint="connect.sealed:kill") == 1
    assert flow.rows == []
    assert follow_apart(flow.manifest, SNAPSHOT) == 0
    assert list(_changes(flow)) == table.expected
    table.insert(10, 250)
    for number in range(300, 320):
        table.change(number)
    drain_apart(flow.manifest, failpoint="connect.told:kill:1+")
    if len(flow.rows) < len(table.expected):  # a run may end before the connector is warm
        assert follow_apart(flow.manifest, len(table.expected)) == 0
    assert drain_apart(flow.manifest) == 0
    assert list(_changes(flow)) == table.expected
