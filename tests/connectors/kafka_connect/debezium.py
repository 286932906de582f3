"""Debezium for PostgreSQL, for tests: its table, and flows that read it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

import devservers
from dataflow_assets.spark.process import LOOPBACK
from tests.connectors.kafka_connect.driver import Config, plugins, source

CLASS = "io.debezium.connector.postgresql.PostgresConnector"


class Followed:
    """A table `rows` in a schema of its own; `wide` rows fill half a page of the disk."""

    def __init__(self, server: devservers.PostgreSQL, connection: psycopg.Connection[Any]) -> None:
        self.server, self._connection = server, connection
        self.name = f"dbz_{uuid.uuid4().hex[:8]}"
        self._run(f"CREATE SCHEMA {self.name}")
        self._run(f"CREATE TABLE {self.name}.rows (id bigint PRIMARY KEY, pad text)")
        self._run(f"ALTER TABLE {self.name}.rows ALTER pad SET STORAGE PLAIN")
        self.count = 0

    def _run(self, statement: str) -> None:
        self._connection.execute(statement.encode())

    def insert(self, rows: int) -> None:
        """One statement, and one entry of the log for each row."""
        last = self.count + rows - 1
        self._run(f"INSERT INTO {self.name}.rows SELECT generate_series({self.count}, {last}), ''")
        self.count += rows

    def copy(self, rows: int, width: int = 3_500) -> None:
        """By COPY: two rows of this width make one entry of the log, and narrow ones 200."""
        with self._connection.cursor().copy(f"COPY {self.name}.rows FROM STDIN".encode()) as copy:
            for number in range(self.count, self.count + rows):
                copy.write_row((number, "x" * width))
        self.count += rows

    def interrupt(self) -> None:
        """Ends the connection by which the connector reads the log, once there is one."""
        ended = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
        until = time.monotonic() + 120
        while not self._connection.execute(
            f"{ended} AND slot_name = '{self.name}'".encode()
        ).fetchall():
            assert time.monotonic() < until, "the connector reads nothing"
            time.sleep(0.2)

    def drop(self) -> None:
        self._run(f"DROP SCHEMA {self.name} CASCADE")
        self._run(f"DROP PUBLICATION IF EXISTS {self.name}")
        self._run(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            f"WHERE slot_name = '{self.name}'"
        )

    @property
    def config(self) -> Config:
        """Of the connector."""
        return settings(self.server, self.name)

    def source(self, folder: Path) -> Config:
        """Of a manifest."""
        reading = source(folder, CLASS, self.config, tasksMax=1, heap="256m")
        return reading | {"plugins": [plugins(folder / "debezium", "connect-debezium")]}


def settings(server: devservers.PostgreSQL, name: str) -> Config:
    """Of the connector, for the table `rows` of a schema, by whose name it calls its slot."""
    return {
        "database.hostname": LOOPBACK,
        "database.port": server.port,
        "database.user": "postgres",
        "database.dbname": "postgres",
        "topic.prefix": "shop",
        "plugin.name": "pgoutput",
        "slot.name": name,
        "retriable.restart.connector.wait.ms": 500,
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        "table.include.list": f"{name}.rows",
        "poll.interval.ms": 50,
        "max.batch.size": 91,
        "max.queue.size": 182,
    }


@contextmanager
def followed(server: devservers.PostgreSQL) -> Iterator[Followed]:
    """Gone afterwards, with its slot."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        table = Followed(server, connection)
        try:
            yield table
        finally:
            table.drop()
