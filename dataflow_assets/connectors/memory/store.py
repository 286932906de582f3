"""The SQLite file behind the in-memory connectors."""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_TABLES = """
create table if not exists messages (topic, partition, "offset", key, body,
    primary key (topic, partition, "offset"));
create table if not exists rows (name, flow, partition, "offset", n, op, row);
create table if not exists errors (id primary key, name, flow, body, metadata, reading, replayed);
create table if not exists checkpoints (id primary key, checkpoint, intent);
create table if not exists identities (name primary key, identity);
create view if not exists rejected as
    select id, substr(name, 17) as name, json_extract(body, '$.error.message') as reason
    from errors where name like 'rejected beside %';
"""


class Store:
    """One named store; every transaction is serialized with all others, across processes."""

    def __init__(self, name: str) -> None:
        self.name = name
        safe = re.sub(r"[^\w.-]", "_", name)
        self.path = Path(tempfile.gettempdir(), f"dataflow-memory-{safe}.db")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commits on success, rolls back on any error."""
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        try:
            connection.execute("begin immediate")
            yield connection
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise
        finally:
            connection.close()

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of one statement, in a transaction of its own."""
        with self.transaction() as connection:
            return connection.execute(sql, values).fetchall()

    def create(self) -> None:
        """Makes the tables where they are missing."""
        connection = sqlite3.connect(self.path, timeout=30)
        connection.executescript(_TABLES)
        connection.close()

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def identity(self, name: str) -> str | None:
        """The id of a topic or table in this store."""
        found = self.query("select identity from identities where name = ?", name)
        return str(found[0][0]) if found else None

    def identify(self, name: str, identity: str) -> None:
        """Gives a topic or table its id: another id is another topic or table."""
        self.query("insert or replace into identities values (?, ?)", name, identity)

    def produce(self, topic: str, partition: int, bodies: Sequence[bytes | None]) -> None:
        """Appends messages to one partition of a topic."""
        with self.transaction() as connection:
            sql = 'select coalesce(max("offset"), -1) from messages where topic=? and partition=?'
            last = connection.execute(sql, (topic, partition)).fetchone()[0]
            messages = [
                (topic, partition, last + 1 + index, None, body)
                for index, body in enumerate(bodies)
            ]
            connection.executemany("insert into messages values (?, ?, ?, ?, ?)", messages)
