"""MySQL and MariaDB in the contract tests: tables of a MariaDB server at either end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

import devservers
from dataflow_assets.connectors.mysql import MysqlSink, MysqlSource
from dataflow_assets.contracts import Sink, Source, Target
from dataflow_assets.spark.process import LOOPBACK
from devservers import Proxy
from tests.contract.drivers import Row, SinkDriver, SourceDriver
from tests.contract.remote import SECRET, Remote, proxied


class _Server(Remote):
    """A database of its own on the session's server."""

    denied = r"Access denied for user 'dataflow'@'127\.0\.0\.1' .*\(error 1045\); check `user` and"

    columns_sql: ClassVar = "id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(200)"
    request: pytest.FixtureRequest

    def _make(self, request: pytest.FixtureRequest, table: str) -> None:
        self.request, self.table = request, table
        self.server: devservers.MariaDB = request.getfixturevalue("mariadb")
        self.database: str = request.getfixturevalue("mysql_database")
        self._port, self._password = self.server.port, self.server.password
        self.run(f"CREATE TABLE {table} ({self.columns_sql})")

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


class Mysql(SinkDriver, _Server):
    type = "mysql"
    down = (
        r"(opening|taking over|writing to|reading) .*no connection to 127\.0\.0\.1:\d+: .*refused"
    )
    altered = (
        r"writing to mysql/\S+/target: Unknown column '(t\.)?name' in .*\(error 1054\); "
        r"was the table altered\? the next run reads its columns again"
    )
    dropped = (
        r"table d_\w+\.target (does not exist at mysql/\S+; create it"
        r"|of mysql/\S+ was dropped while the flow ran; create it again)"
        r", or set autoCreateTable: true"
    )
    in_task = "mysql.before-commit"
    failpoints = (
        "drain.begun",
        "mysql.begin",
        "mysql.load",
        "mysql.before-commit",
        "mysql.after-commit",
        "drain.passed",
        "mysql.finish",
        "drain.finished",
    )
    columns_sql: ClassVar = "id BIGINT NOT NULL, name TEXT, _at BIGINT AUTO_INCREMENT PRIMARY KEY"
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self._make(request, "target")

    def declare(self) -> Sink:
        return MysqlSink.model_validate(self.config() | self.options)

    def busy(self, request: bytes) -> bool:
        return b"name-2" in request

    def final(self, request: bytes) -> bool:
        return b"COMMIT" in request

    def rows(self) -> list[Row]:
        return [(id_, name) for id_, name in self.run("SELECT id, name FROM target ORDER BY 1, 2")]

    def arrived(self) -> list[list[Row]]:
        found = self.run("SELECT id, name FROM target ORDER BY _at")
        return [[(id_, name) for id_, name in found]]

    def rejected(self) -> list[str]:
        found = self.run("SELECT reason FROM dataflow_rejected ORDER BY 1")
        return [reason for (reason,) in found]

    def rebuild(self, rows: Sequence[Row]) -> None:
        """As a migration does: a copy takes the table's name."""
        values = [f"INSERT INTO rebuilt (id, name) VALUES ({id_}, '{name}')" for id_, name in rows]
        self.run("CREATE TABLE rebuilt LIKE target", *values, "DROP TABLE target")
        self.run("RENAME TABLE rebuilt TO target")

    def lose(self, target: Target) -> None:
        self.run(f"DELETE FROM dataflow_checkpoint WHERE flow = '{target.flow}'")

    def move(self, target: Target, offset: int) -> None:
        moved = f"checkpoint = JSON_SET(checkpoint, '$.positions.\"0\"', {offset})"
        self.run(f"UPDATE dataflow_checkpoint SET {moved} WHERE flow = '{target.flow}'")


class MysqlUpsert(Mysql):
    variant = "upsert"
    upserts = True
    columns_sql: ClassVar = _Server.columns_sql
    options: ClassVar = {"upsertMode": True}

    def arrived(self) -> list[list[Row]]:
        return []
