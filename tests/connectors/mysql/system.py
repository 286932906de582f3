"""Tables of a MariaDB server as ends of whole flows."""

from __future__ import annotations

from collections.abc import Sequence

import devservers
from dataflow_assets.spark.process import LOOPBACK
from tests.systems import Change, Config, System, state

_KINDS = {"id": "bigint primary key", "name": "varchar(200)", "price": "double", "ok": "bit(1)"}


class Mysql(System):
    type = "mysql"

    def at(self, role: str, config: Config) -> Config:
        self.server: devservers.MariaDB = self.request.getfixturevalue("mariadb")
        self.database: str = self.request.getfixturevalue("mysql_database")
        return {
            **config,
            "host": LOOPBACK,
            "port": self.server.port,
            "database": self.database,
            "user": self.server.user,
            "password": self.server.password,
            "table": role,
        }

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        kinds = _KINDS | {"updated_at": "timestamp(6)"}
        names = list(changes[0].row)
        listed = ", ".join(f"{_quote(name)} {kinds.get(name, 'bigint')}" for name in names)
        values = ", ".join(f"({', '.join(map(_literal, row.values()))})" for row in state(changes))
        self.server.execute(
            f"CREATE TABLE {config['table']} ({listed})",
            "SET time_zone = '+00:00'",
            f"INSERT INTO {config['table']} VALUES {values}",
            database=self.database,
        )


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float):
        return repr(value)
    return "'" + str(value).removesuffix("+00:00").replace("'", "''") + "'"
