"""MySQL in the contract tests, by a server of MariaDB: tables as a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

import devservers
from dataflow_assets.connectors.mysql import MysqlSink
from dataflow_assets.contracts import Sink, Target
from devservers import Proxy
from tests.contract.drivers import Row, SinkDriver
from tests.contract.remote import SECRET, Remote, proxied


class _Database(Remote):
    """A table in MariaDB, at either end of a flow."""

    table: ClassVar[str]
    request: pytest.FixtureRequest
    down = r"no connection to 127\.0\.0\.1:\d+: .*Connection refused"
    denied = r"Access denied for user 'nobody_here'@.*; check `user` and `password`"

    def connect(self) -> None:
        """Where the table is."""
        self.server: devservers.MariaDB = self.request.getfixturevalue("mariadb")
        self.database: str = self.request.getfixturevalue("mysql_database")
        self.config: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": self.server.port,
            "user": self.server.user,
            "password": self.server.password,
            "database": self.database,
            "table": self.table,
        }

    def through(self) -> tuple[Proxy, ...]:
        proxy = proxied(self.server.port, self.request.addfinalizer)
        self.config["port"] = proxy.port
        return (proxy,)

    def wrong_credentials(self) -> None:
        self.config |= {"user": "nobody_here", "password": SECRET}

    def alter(self) -> None:
        self._execute("ALTER TABLE {} RENAME COLUMN name TO renamed")

    def mend(self) -> None:
        self._execute("ALTER TABLE {} RENAME COLUMN renamed TO name")

    def drop(self) -> None:
        self._execute("DROP TABLE {}")

    def _execute(self, *statements: str) -> list[tuple[Any, ...]]:
        named = (one.format(self.table) for one in statements)
        return self.server.execute(*named, database=self.database)


class Mysql(SinkDriver, _Database):
    type = "mysql"
    table = "target"
    altered = (
        r"writing to mysql/\S+/target: Unknown column 'name' in .*\(error 1054\); was the table "
        r"altered\? the next run reads its columns again"
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
    columns: ClassVar = "id BIGINT NOT NULL, name TEXT, _at BIGINT AUTO_INCREMENT PRIMARY KEY"
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.connect()
        self._execute(f"CREATE TABLE {{}} ({self.columns})")

    def declare(self) -> Sink:
        return MysqlSink.model_validate(self.config | self.options)

    def busy(self, request: bytes) -> bool:
        return b"name-2" in request

    def final(self, request: bytes) -> bool:
        return b"COMMIT" in request

    def rows(self) -> list[Row]:
        return [(id_, name) for id_, name in self._execute("SELECT id, name FROM {} ORDER BY 1, 2")]

    def arrived(self) -> list[list[Row]]:
        return [[*self._execute("SELECT id, name FROM {} ORDER BY _at")]]  # type: ignore[list-item]

    def rejected(self) -> list[str]:
        found = self._execute("SELECT reason FROM dataflow_rejected ORDER BY 1")
        return [reason for (reason,) in found]

    def rebuild(self, rows: Sequence[Row]) -> None:
        """As a migration does: a copy takes the table's name."""
        values = [f"INSERT INTO rebuilt (id, name) VALUES ({id_}, '{name}')" for id_, name in rows]
        self._execute("CREATE TABLE rebuilt LIKE {}", *values, "DROP TABLE {}")
        self._execute("RENAME TABLE rebuilt TO {}")

    def lose(self, target: Target) -> None:
        self._execute(f"DELETE FROM dataflow_checkpoint WHERE flow = '{target.flow}'")

    def move(self, target: Target, offset: int) -> None:
        moved = f"checkpoint = JSON_SET(checkpoint, '$.positions.\"0\"', {offset})"
        where = f"WHERE flow = '{target.flow}'"
        self._execute(f"UPDATE dataflow_checkpoint SET {moved} {where}")


class MysqlUpsert(Mysql):
    variant = "upsert"
    upserts = True
    columns: ClassVar = "id BIGINT NOT NULL PRIMARY KEY, name TEXT"
    options: ClassVar = {"upsertMode": True}

    def arrived(self) -> list[list[Row]]:
        return []
