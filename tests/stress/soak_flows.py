"""The flows of the soak: every source and every sink, what is sent, and what must stand there."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from tests.connectors.clickhouse.system import Clickhouse
from tests.connectors.iceberg.system import Iceberg
from tests.connectors.postgresql.system import Postgresql as PostgresqlSystem
from tests.flows import SYSTEMS, manifest
from tests.stress.chaos_modes import TARGETS
from tests.stress.chaos_targets import Target
from tests.systems import Config, Fixtures, Row, System

KEYS = 500
NAMES = ("id", "n", "name", "updated_at")
AHEAD = timedelta(seconds=3)
"""Rows lie so far in the future, and are read when it is over: none is committed too late."""


class Changed(ABC):
    """A table that is polled while its rows change, into a sink that matches them by `id`."""

    type: ClassVar[str]
    reading: ClassVar[Config] = {}
    rows_each: ClassVar[int] = 15

    def __init__(
        self, into: str, given: Fixtures, chance: random.Random, folder: Path, **options: object
    ) -> None:
        self._chance, self._sent = chance, 0
        self.wanted: dict[int, Row] = {}
        self._source, self._sink = SYSTEMS[self.type](given), SYSTEMS[into](given)
        self.read = self._source.at("source", {**self.reading, "pollInterval": 2})
        self.stored = self._sink.at("sink", {**_matching(self._sink), **options})
        self.create(self._source)
        self.manifest = manifest(folder, (self.type, self.read), (into, self.stored), records=1_000)

    def tick(self) -> int:
        """Some rows are new or changed; how many."""
        rows = [self._row() for _ in range(self.rows_each)]
        rows = list({row["id"]: row for row in rows}.values())
        self.put(self._source, rows)
        self.wanted |= {row["id"]: row for row in rows}
        return len(rows)

    def _row(self) -> Row:
        self._sent += 1
        when = datetime.now(UTC) + AHEAD
        return {"id": self.key(), "n": self._sent, "name": f"näme {self._sent}", "updated_at": when}

    def key(self) -> int:
        """Of the next row."""
        return self._chance.randrange(KEYS)

    def wrong(self) -> list[str]:
        """Rows of the target that are not as they must be."""
        found = sorted(_compared(row) for row in self._sink.rows(self.stored))
        wanted = sorted(_compared(row) for row in self.wanted.values())
        return [f"{self.type}: {row}" for row in {*found} ^ {*wanted}] + _twice(found)

    @abstractmethod
    def create(self, source: Any) -> None:
        """Makes the empty table."""

    @abstractmethod
    def put(self, source: Any, rows: Sequence[Row]) -> None:
        """Writes the rows over those of the same keys."""


def _matching(sink: System) -> Config:
    made = {} if sink.type == "kafka" else {"autoCreateTable": True}
    return {**(sink.upsert or {}), **made}


def _compared(row: Row) -> tuple[int, int, str]:
    return row["id"], row["n"], row["name"]


def _twice(rows: Sequence[tuple[int, int, str]]) -> list[str]:
    return [f"{row} stands twice" for row in {*rows} if rows.count(row) > 1]


class FromPostgresql(Changed):
    type = "postgresql"

    def create(self, source: PostgresqlSystem) -> None:
        columns = "id bigint primary key, n bigint, name text, updated_at timestamptz"
        self._execute(source, f"create table {self.read['table']} ({columns})", [])

    def put(self, source: PostgresqlSystem, rows: Sequence[Row]) -> None:
        excluded = ", ".join(f"{name} = excluded.{name}" for name in NAMES[1:])
        values = "%(id)s, %(n)s, %(name)s, %(updated_at)s"
        sql = f"insert into {self.read['table']} values ({values})"
        self._execute(source, f"{sql} on conflict (id) do update set {excluded}", rows)

    @staticmethod
    def _execute(source: PostgresqlSystem, sql: str, rows: Sequence[Row]) -> None:
        import psycopg

        with psycopg.connect(source.dsn) as connection:
            if rows:
                connection.cursor().executemany(sql.encode(), rows)
            else:
                connection.execute(sql.encode())


class FromClickhouse(Changed):
    type = "clickhouse"
    reading: ClassVar[Config] = {"changeTrackingColumn": "updated_at", "final": True}

    def create(self, source: Clickhouse) -> None:
        columns = "id Int64, n Int64, name String, updated_at DateTime64(6, 'UTC')"
        engine = "ReplacingMergeTree(n) ORDER BY id"
        source.client.command(f"CREATE TABLE {self.read['table']} ({columns}) ENGINE = {engine}")

    def put(self, source: Clickhouse, rows: Sequence[Row]) -> None:
        values = [[row[name] for name in NAMES] for row in rows]
        source.client.insert(self.read["table"], values, list(NAMES))


class FromIceberg(Changed):
    """Rows are only added: each has a key of its own."""

    type = "iceberg"
    rows_each = 5
    schema: ClassVar[pa.Schema] = pa.schema(
        [
            ("id", pa.int64()),
            ("n", pa.int64()),
            ("name", pa.string()),
            ("updated_at", pa.timestamp("us", "UTC")),
        ]
    )

    def key(self) -> int:
        return self._sent

    def create(self, source: Iceberg) -> None:
        source.catalog.create_table(self._place, self.schema)

    def put(self, source: Iceberg, rows: Sequence[Row]) -> None:
        table = source.catalog.load_table(self._place)
        table.append(pa.Table.from_pylist(list(rows), self.schema))

    @property
    def _place(self) -> tuple[str, str]:
        return self.read["namespace"], self.read["table"]


class Sent:
    """Changes into a sink, as chaos has them: from a topic, or from files."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.manifest = target.manifest

    def tick(self) -> int:
        """Some changes are sent; how many."""
        return len(self.target.send(25))

    def wrong(self) -> list[str]:
        """What is wrong in the target."""
        verdict = self.target.verdict()
        return [f"{self.target.type}: {verdict}"] if verdict else []


Flow = Sent | Changed
SELDOM = {"batchFlushIntervalSeconds": 10}
"""Of Iceberg: each commit leaves its metadata behind."""


def steady(given: Fixtures, chance: random.Random, folder: Path) -> list[Flow]:
    """The flows of the driver that runs all the time."""
    return [
        Sent(TARGETS["postgresql"]("upsert", given, chance, folder)),
        Sent(TARGETS["iceberg"]("upsert", given, chance, folder, **SELDOM)),
        FromClickhouse("kafka", given, chance, folder),
        Sent(TARGETS["files"]("append", given, chance, folder)),
        Sent(TARGETS["nessie"]("upsert", given, chance, folder, **SELDOM)),
    ]


def restarted(given: Fixtures, chance: random.Random, folder: Path) -> list[Flow]:
    """The flows of the driver that is stopped or killed every few minutes."""
    return [
        Sent(TARGETS["clickhouse"]("upsert", given, chance, folder)),
        Sent(TARGETS["kafka"]("upsert", given, chance, folder)),
        Sent(TARGETS["kafka-secured"]("upsert", given, chance, folder)),
        FromPostgresql("clickhouse", given, chance, folder),
        FromIceberg("postgresql", given, chance, folder),
        Sent(TARGETS["files-source"]("append", given, chance, folder)),
    ]
