"""Tables of PostgreSQL as ends of whole flows, also one that is followed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import psycopg

from tests.systems import Change, Config, Row, System, quoted, without_columns


class Postgresql(System):
    type = "postgresql"
    upsert: ClassVar[Config | None] = {
        "upsertMode": True,
        "conflictKey": "id",
        "deleteMode": "hard",
    }

    def at(self, role: str, config: Config) -> Config:
        self.dsn = self.request.getfixturevalue("postgresql").dsn()
        schema = self.request.getfixturevalue("schema")
        table = f"{schema}.{role}"
        return {**config, "connectionString": self.dsn, "table": table}

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        with psycopg.connect(self.dsn) as connection:
            self._create(connection, config["table"], changes[0].row)
            for change in changes:
                connection.execute(*_sql(config["table"], change))

    @staticmethod
    def _create(connection: psycopg.Connection[Any], table: str, names: Iterable[str]) -> None:
        listed = ", ".join(f"{quoted(name)} {_TYPES.get(name, 'bigint')}" for name in names)
        connection.execute(f"create table {table} ({listed})".encode())

    def rows(self, config: Config) -> list[Row]:
        from psycopg.rows import dict_row
        from psycopg.types.string import TextLoader

        with psycopg.connect(self.dsn, row_factory=dict_row) as connection:
            for kind in ("interval", "timetz", "inet", "cidr", "int4range", "int4multirange"):
                connection.adapters.register_loader(kind, TextLoader)
            found = connection.execute(f"select * from {config['table']}").fetchall()
        return [without_columns(row, ("created_at", "updated_at")) for row in found]

    def declared(self, config: Config) -> dict[str, str]:
        sql = (
            "select attname, format_type(atttypid, atttypmod) || repeat('[]', attndims - 1) "
            "from pg_attribute "
            "where attrelid = %s::regclass and attnum > 0 and not attisdropped"
        )
        with psycopg.connect(self.dsn) as connection:
            return dict(connection.execute(sql, (config["table"],)).fetchall())

    @staticmethod
    def spelled(kind: str) -> str:
        zones = {
            "timestamptz": "timestamp with time zone",
            "timestamp": "timestamp without time zone",
            "time": "time without time zone",
        }
        return zones.get(kind, kind.replace(", ", ","))


class PostgresqlCdc(Postgresql):
    """A table that is followed; where no snapshot is taken, from before its first row."""

    type = "postgresql-cdc"
    tells_changes = True

    def at(self, role: str, config: Config) -> Config:
        found = super().at(role, {n: v for n, v in config.items() if n != "tombstones"})
        self.table = str(found.pop("table"))
        self.name = self.table.partition(".")[0]
        names = {"slotName": self.name, "publicationName": self.name, "tables": [self.table]}
        self.request.addfinalizer(self._remove)
        return {"snapshotMode": "never", **found, **names}

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        from psycopg import sql

        with psycopg.connect(self.dsn, autocommit=True) as connection:
            table = sql.Identifier(*self.table.split("."))
            self._create(connection, self.table, changes[0].row)
            if config["snapshotMode"] == "never":
                publish = sql.SQL("create publication {} for table {}")
                connection.execute(publish.format(sql.Identifier(self.name), table))
                slot = "select pg_create_logical_replication_slot(%s, 'pgoutput')"
                connection.execute(slot, [self.name])
            for change in changes:
                connection.execute(*_sql(self.table, change))

    def _remove(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots "
                "where slot_name = %s",
                [self.name],
            )
            connection.execute(f'drop publication if exists "{self.name}"'.encode())


_TYPES = {
    "id": "bigint primary key",
    "name": "text",
    "price": "double precision",
    "ok": "boolean",
    "updated_at": "timestamptz",
    "status": "text",
    "user": "bigint",
}


def _sql(table: str, change: Change) -> tuple[bytes, list[Any]]:
    """A statement and its values."""
    values = list(change.row.values())
    if change.op == "insert":
        return f"insert into {table} values ({', '.join(['%s'] * len(values))})".encode(), values
    if change.op == "update":
        names = [quoted(name).replace("%", "%%") for name in change.row]
        listed = ", ".join(f"{name} = %s" for name in names)
        return f"update {table} set {listed} where id = %s".encode(), [*values, change.row["id"]]
    return f"delete from {table} where id = %s".encode(), [change.row["id"]]
