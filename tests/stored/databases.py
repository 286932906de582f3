"""The stores that are tables: of PostgreSQL, of ClickHouse, in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import psycopg

import devservers
from dataflow_assets.connectors.clickhouse import client as clickhouse
from dataflow_assets.connectors.memory import Store as MemoryStore
from tests.stored.stores import Config, Row, Stores, shown


class Postgresql(Stores):
    """A schema, with the tables of the flow beside the target."""

    type = "postgresql"

    def make(self) -> None:
        server: devservers.PostgreSQL = self.request.getfixturevalue("postgresql")
        self.schema: str = self.request.getfixturevalue("schema")
        self.connection = psycopg.connect(server.dsn(), autocommit=True)
        self.request.addfinalizer(self.connection.close)
        self.connection.execute(f"SET search_path = {self.schema}".encode())
        self.dsn = server.dsn()

    def names(self) -> dict[str, str]:
        return {"schema": self.schema} | self._oids()

    def _oids(self) -> dict[str, str]:
        """Of the tables that are not the flow's own."""
        found = self.connection.execute(_OIDS, [self.schema]).fetchall()
        return {f"{name}_oid": str(oid) for name, oid in found}

    def config(self) -> Config:
        table = f"{self.schema}.target"
        return {"connectionString": self.dsn, "table": table, "autoCreateTable": True}

    def rows(self) -> list[Row]:
        return self.connection.execute("SELECT id, name FROM target ORDER BY 1, 2").fetchall()

    def dump(self) -> Any:
        names = self.connection.execute(_TABLES, [self.schema]).fetchall()
        return {name: {"create": create, "rows": self._copied(name)} for name, create in names}

    def _copied(self, table: str) -> list[str]:
        with self.connection.cursor().copy(f"COPY {table} TO STDOUT".encode()) as copy:
            return b"".join(copy).decode().splitlines()

    def load(self, dumped: Any) -> None:
        for name in sorted(dumped, key=_is_own):  # which name oids of others
            self.connection.execute(dumped[name]["create"])
            rows = [shown(row, self._oids()) + "\n" for row in dumped[name]["rows"]]
            with self.connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
                copy.write("".join(rows))


def _is_own(table: str) -> bool:
    return table.startswith("dataflow_")


_OIDS = """
SELECT relname, oid FROM pg_class
WHERE relnamespace = %s::regnamespace AND relkind = 'r' AND relname NOT LIKE 'dataflow%%'
"""
_TABLES = """
SELECT relname, format('CREATE TABLE %%I (%%s)', relname, concat_ws(', ',
    (SELECT string_agg(concat_ws(' ', quote_ident(attname), format_type(atttypid, atttypmod),
                                 'DEFAULT ' || pg_get_expr(adbin, adrelid),
                                 CASE WHEN attnotnull THEN 'NOT NULL' END), ', ' ORDER BY attnum)
     FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
     WHERE attrelid = t.oid AND attnum > 0 AND NOT attisdropped),
    (SELECT string_agg(pg_get_constraintdef(oid), ', ') FROM pg_constraint
     WHERE conrelid = t.oid AND contype IN ('p', 'u'))))
FROM pg_class AS t WHERE relnamespace = %s::regnamespace AND relkind = 'r' ORDER BY 1
"""


class PostgresqlUpsert(Postgresql):
    """Its table has a primary key."""

    def config(self) -> Config:
        return super().config() | {"upsertMode": True, "conflictKey": "id"}


class Clickhouse(Stores):
    """A database."""

    type = "clickhouse"

    def make(self) -> None:
        server: devservers.ClickHouse = self.request.getfixturevalue("clickhouse")
        self.database: str = self.request.getfixturevalue("database")
        self.dsn = server.dsn(self.database)
        self.client = clickhouse.connect(self.dsn, "tests")
        self.request.addfinalizer(self.client.close)

    def names(self) -> dict[str, str]:
        return {"database": self.database} | self._uuid()

    def _uuid(self) -> dict[str, str]:
        sql = (
            "SELECT 'uuid', toString(uuid) FROM system.tables "
            f"WHERE database = '{self.database}' AND name = 'target'"
        )
        return dict(self._asked(sql))

    def _asked(self, sql: str) -> list[Any]:
        return list(self.client.query(sql).result_rows)

    def config(self) -> Config:
        return {"connectionString": self.dsn, "table": "target", "autoCreateTable": True}

    def rows(self) -> list[Row]:
        found = self._asked("SELECT id, name FROM target ORDER BY 1, 2")
        return [(row[0], row[1]) for row in found]

    def dump(self) -> Any:
        tables = [name for (name,) in self._asked("SHOW TABLES")]
        return {
            name: {"create": self._created(name), "rows": self._copied(name)} for name in tables
        }

    def _created(self, table: str) -> str:
        ((text,),) = self._asked(f"SHOW CREATE TABLE {table}")
        return str(text)

    def _copied(self, table: str) -> list[str]:
        text = self.client.raw_query(f"SELECT * FROM {table} FORMAT TabSeparated")
        return text.decode().splitlines()

    def load(self, dumped: Any) -> None:
        for name in sorted(dumped, key=lambda name: name != "target"):  # others name its uuid
            self.client.command(dumped[name]["create"])
            rows = [shown(row, self._uuid()) + "\n" for row in dumped[name]["rows"]]
            self.client.raw_insert(name, insert_block="".join(rows), fmt="TabSeparated")


class ClickhouseUpsert(Clickhouse):
    """Of the rows of a key the newest counts."""

    def config(self) -> Config:
        return super().config() | {"upsertMode": True, "conflictKey": "id"}

    def rows(self) -> list[Row]:
        found = self._asked("SELECT id, name FROM target FINAL ORDER BY 1, 2")
        return [(row[0], row[1]) for row in found]


class Memory(Stores):
    """A store of the in-memory connectors: its tables."""

    type = "memory-slice"
    tables = ("rows", "errors", "checkpoints", "identities")

    def make(self) -> None:
        self.store: MemoryStore = self.request.getfixturevalue("store")

    def names(self) -> dict[str, str]:
        return {"store": self.store.name}

    def config(self) -> Config:
        return {"store": self.store.name, "table": "target"}

    def rows(self) -> list[Row]:
        rows = [json.loads(row) for (row,) in self.store.query("select row from rows")]
        return sorted((row["id"], row["name"]) for row in rows)

    def dump(self) -> Any:
        return {name: rows_of(self.store, name) for name in self.tables}

    def load(self, dumped: Any) -> None:
        for name, rows in dumped.items():
            fill(self.store, name, rows)


def rows_of(store: MemoryStore, table: str) -> list[list[Any]]:
    """All that are in a table of a store."""
    found = store.query(f"select * from {table}")
    return [[one.decode() if isinstance(one, bytes) else one for one in row] for row in found]


def fill(store: MemoryStore, table: str, rows: Iterable[list[Any]]) -> None:
    """Puts such rows back."""
    for row in rows:
        store.query(f"insert into {table} values ({', '.join('?' * len(row))})", *row)
