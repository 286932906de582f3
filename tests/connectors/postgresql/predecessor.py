"""JustOne's connector as its database sees it: one task with synchronized delivery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import sql

SCHEMA = "$justone$kafka$connect$sink"


class Predecessor:
    """Starts a session, moves rows and the offsets that come next in one transaction, stops.

    The state of each target is a table whose name is `schema.table`; a flush replaces all of it.
    """

    def __init__(self, dsn: str, schema: str, table: str) -> None:
        self._schema, self._table = schema, table
        self._state = sql.Identifier(SCHEMA, f"{schema}.{table}")
        self._connection = psycopg.connect(dsn, autocommit=True)

    def __enter__(self) -> Self:
        self._run("CREATE SCHEMA IF NOT EXISTS {}", sql.Identifier(SCHEMA))
        self._run(
            "CREATE TEMPORARY TABLE {} (LIKE {})",
            sql.Identifier(self._table),
            sql.Identifier(self._schema, self._table),
        )
        self._run(
            "CREATE TABLE IF NOT EXISTS {} (kafka_topic VARCHAR NOT NULL, "
            "kafka_partition INTEGER NOT NULL, kafka_offset BIGINT NOT NULL)",
            self._state,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def flush(self, rows: Sequence[Sequence[Any]], offsets: Mapping[tuple[str, int], int]) -> None:
        """Rows into the target, and the next offset of each (topic, partition)."""
        waiting = sql.Identifier("pg_temp", self._table)
        for row in rows:
            marks = sql.SQL(", ").join([sql.Placeholder()] * len(row))
            query = sql.SQL("INSERT INTO {} VALUES ({})").format(waiting, marks)
            self._connection.execute(query, row)
        with self._connection.transaction():
            target = sql.Identifier(self._schema, self._table)
            self._run("INSERT INTO {} SELECT * FROM {}", target, waiting)
            self._run("TRUNCATE TABLE {}", waiting)
            self._run("TRUNCATE TABLE {}", self._state)
            for (topic, partition), offset in offsets.items():
                query = sql.SQL("INSERT INTO {} VALUES (%s, %s, %s)").format(self._state)
                self._connection.execute(query, (topic, partition, offset))

    def _run(self, query: Any, *names: sql.Composable) -> None:
        self._connection.execute(sql.SQL(query).format(*names))
