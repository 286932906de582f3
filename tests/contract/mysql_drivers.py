"""MySQL and MariaDB in the contract tests: tables of a MariaDB server as a polled source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import devservers
from dataflow_assets.connectors.mysql import MysqlSource
from dataflow_assets.contracts import Source
from dataflow_assets.spark.process import LOOPBACK
from devservers import Proxy
from tests.contract.drivers import Row, SourceDriver
from tests.contract.remote import SECRET, Remote, proxied


class _Server(Remote):
    """A database of its own on the session's server."""

    denied = r"Access denied for user 'dataflow'@'127\.0\.0\.1' .*\(error 1045\); check `user` and"

    def _make(self, request: pytest.FixtureRequest, table: str) -> None:
        self.request, self.table = request, table
        self.server: devservers.MariaDB = request.getfixturevalue("mariadb")
        self.database: str = request.getfixturevalue("mysql_database")
        self._port, self._password = self.server.port, self.server.password
        self.run(f"CREATE TABLE {table} (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(200))")

    def config(self) -> dict[str, Any]:
        return {
            "host": LOOPBACK,
            "port": self._port,
            "database": self.database,
            "user": self.server.user,
            "password": self._password,
            "table": self.table,
        }

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.execute(*statements, database=self.database)

    def through(self) -> tuple[Proxy, ...]:
        proxy = proxied(self.server.port, self.request.addfinalizer)
        self._port = proxy.port
        return (proxy,)

    def wrong_credentials(self) -> None:
        self._password = SECRET

    def alter(self) -> None:
        self.run(f"ALTER TABLE {self.table} RENAME COLUMN name TO renamed")

    def mend(self) -> None:
        self.run(f"ALTER TABLE {self.table} RENAME COLUMN renamed TO name")

    def drop(self) -> None:
        self.run(f"DROP TABLE {self.table}")


class MysqlTable(SourceDriver, _Server):
    """Read by its key alone: the targets have the same two columns."""

    type = "mysql"
    columns = True
    down = r"connecting to table of mysql/\S+/source: no connection to 127\.0\.0\.1:\d+: .*refused"
    altered = r"the source delivers columns that the target lacks: renamed"
    dropped = r"table of mysql/\S+/source does not exist: it was dropped, or never made"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self._make(request, "source")

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        assert not raw, "a table holds no raw messages"
        for first in range(0, len(rows), 5_000):
            listed = ", ".join(f"({id_}, '{name}')" for id_, name in rows[first:][:5_000])
            self.run(f"INSERT INTO source VALUES {listed}")

    def declare(self) -> Source:
        return MysqlSource.model_validate(self.config() | {"pollInterval": 0})

    def busy(self, request: bytes) -> bool:
        return b"AS `#0`" in request and b"ORDER BY" in request

    final = busy
