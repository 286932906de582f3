"""Tables of a MariaDB server as ends of whole flows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

import devservers
from dataflow_assets.spark.process import LOOPBACK
from tests.systems import Change, Config, Row, System, state, without_columns

_KINDS = {"id": "bigint primary key", "name": "varchar(200)", "price": "double", "ok": "bit(1)"}


class Mysql(System):
    type = "mysql"
    upsert: ClassVar[Config | None] = {
        "upsertMode": True,
        "conflictKey": "id",
        "deleteMode": "hard",
    }

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

    def rows(self, config: Config) -> list[Row]:
        kinds = self.declared(config)
        texts = {"point": "ST_AsText({})", "time": "CAST({} AS CHAR)"}
        listed = ", ".join(texts.get(kind, "{}").format(_quote(n)) for n, kind in kinds.items())
        query = f"SELECT {listed} FROM {config['table']}"
        found = self.server.execute("SET time_zone = '+00:00'", query, database=self.database)
        rows = [dict(zip(kinds, map(_value, kinds.values(), row), strict=True)) for row in found]
        return [without_columns(row, ("created_at", "updated_at")) for row in rows]

    def declared(self, config: Config) -> dict[str, str]:
        schema, table = self.database, config["table"]
        where = f"WHERE table_schema = '{schema}' AND table_name = '{table}'"
        found = self.server.execute(
            f"SELECT column_name, column_type FROM information_schema.columns {where} "
            "ORDER BY ordinal_position"
        )
        checks = self.server.execute(
            "SELECT check_clause FROM information_schema.check_constraints WHERE "
            f"constraint_schema = '{schema}' AND table_name = '{table}'"
        )
        json = {text.split("`")[1] for (text,) in checks if text.startswith("json_valid(")}
        return {name: "json" if name in json else _plain(kind) for name, kind in found}

    @staticmethod
    def spelled(kind: str) -> str:
        return {"boolean": "tinyint(1)"}.get(kind, kind.replace(", ", ","))


def _plain(kind: str) -> str:
    """Without the width that MariaDB shows of integers."""
    return kind if kind == "tinyint(1)" else re.sub(r"(int|year)\(\d+\)", r"\1", kind)


def _value(kind: str, value: Any) -> Any:
    """Bits as numbers, and booleans, which MySQL has none of."""
    if kind.startswith("bit(") and value is not None:
        value = int.from_bytes(value)
    return bool(value) if kind in {"tinyint(1)", "bit(1)"} and value is not None else value


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
