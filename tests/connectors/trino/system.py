"""Tables of Trino as ends of whole flows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

import devservers
from tests.systems import Change, Config, Row, System, quoted, state


class Trino(System):
    """Tables of an Iceberg catalog."""

    type = "trino"
    upsert: ClassVar[Config | None] = {
        "upsertMode": True,
        "conflictKey": "id",
        "deleteMode": "hard",
    }

    def at(self, role: str, config: Config) -> Config:
        self.server: devservers.Trino = self.request.getfixturevalue("trino")
        self.schema: str = self.request.getfixturevalue("trino_schema")
        given = {k: v for k, v in config.items() if k not in ("keycloak", "schemaSecretRef")}
        where = {"serverURL": self.server.uri, "catalog": "lake", "schema": self.schema}
        return {**given, **where, "table": role}

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        kinds = {"id": "bigint", "name": "varchar", "price": "double", "ok": "boolean"}
        kinds["updated_at"] = "timestamp(6) with time zone"
        names = list(changes[0].row)
        listed = ", ".join(f"{quoted(name)} {kinds.get(name, 'bigint')}" for name in names)
        self.execute(f"CREATE TABLE {config['table']} ({listed})")
        rows = [f"({', '.join(map(_trino, row.values()))})" for row in state(changes)]
        self.execute(f"INSERT INTO {config['table']} VALUES {', '.join(rows)}")

    def rows(self, config: Config) -> list[Row]:
        """By way of Python's values, as the client maps them; what is compound as JSON."""
        import trino

        kinds = self.declared(config)
        listed = ", ".join(
            f"json_format(CAST({quoted(n)} AS json)) AS {quoted(n)}"
            if "(" in k and k[:3] in _COMPOUND
            else quoted(n)
            for n, k in kinds.items()
        )
        host, port = "127.0.0.1", self.server.ports["http"]
        with trino.dbapi.connect(  # type: ignore[no-untyped-call]
            host=host, port=port, user="tests", catalog="lake", schema=self.schema
        ) as connection:
            cursor = connection.cursor()
            cursor.execute(f'SELECT {listed} FROM "{config["table"]}"')
            return [dict(zip(kinds, row, strict=True)) for row in cursor.fetchall()]

    def declared(self, config: Config) -> dict[str, str]:
        found = self.execute(f"DESCRIBE {config['table']}")
        return {name: kind for name, kind, *_ in found}

    @staticmethod
    def spelled(kind: str) -> str:
        """What a catalog of Iceberg makes of a type."""
        if kind.startswith("timestamp(9)") or kind in _NOT_IN_ICEBERG:
            return "varchar"
        kind = re.sub(r"\b(tinyint|smallint)\b", "integer", kind)
        return (
            kind.replace('"', "").replace(", ", ",")
            if kind.startswith("decimal")
            else kind.replace('"', "")
        )

    def execute(self, sql: str) -> list[list[Any]]:
        from tests.connectors.trino.driver import execute

        return execute(self.server, sql, self.schema)


_COMPOUND = {"row", "arr", "map"}


_NOT_IN_ICEBERG = {"json", "time(6) with time zone"}


def _trino(value: Any) -> str:
    """A value of Python as SQL."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f} UTC'"
    if isinstance(value, float):
        return f"DOUBLE '{value}'"
    return str(value) if isinstance(value, int) else f"'{value}'"
