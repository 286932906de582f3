"""Broker and PostgreSQL of a fleet, its topics and tables, and the mark of all its processes."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import psycopg
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import devservers
from bench.fleet import processes
from bench.fleet.manifests import SCHEMA, Member, table
from dataflow_assets.spark import jars

CONNECTIONS = "1000"  # how many a fleet needs is not what is measured
COLUMNS = "id bigint, produced double precision, customer text, city text"


@dataclass(frozen=True)
class Ground:
    """What a fleet runs on."""

    folder: Path
    mark: str
    kafka: devservers.Kafka
    postgresql: devservers.PostgreSQL

    def prepare(self, flows: Sequence[Member]) -> None:
        """Makes their topics and tables."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 3})
        new = [NewTopic(flow.name, 1, 1) for flow in flows]
        for made in admin.create_topics(new).values():
            made.result(60)
        with self.connected() as connection:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}".encode())
            for flow in flows:
                connection.execute(f"CREATE TABLE {flow.table} ({COLUMNS})".encode())

    def held(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """By flow: how many rows its table holds, and of how many messages."""
        found = {}
        with self.connected() as connection:
            for name in names:
                query = f"SELECT count(*), count(DISTINCT id) FROM {table(name)}"
                row = connection.execute(query.encode()).fetchone()
                found[name] = row or (0, 0)
        return found

    def connected(self) -> psycopg.Connection:
        """A connection for looking."""
        return psycopg.connect(self.postgresql.dsn(), autocommit=True)


@contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    """Servers of our own, gone at the end with everything that they or we have started."""
    postgresql = devservers.PostgreSQL(
        folder / "postgresql", config={"max_connections": CONNECTIONS}
    )
    with marked(folder) as mark, devservers.Kafka(folder / "kafka") as kafka, postgresql:
        yield Ground(folder, mark, kafka, postgresql)


@contextmanager
def marked(folder: Path) -> Iterator[str]:
    """A mark for all processes that are started meanwhile; at the end none of them lives."""
    mark = uuid.uuid4().hex
    variables = {processes.MARK: mark, "DATAFLOW_CACHE": str(_cache(folder)), "DATAFLOW_SPARK": ""}
    with patch.dict(os.environ, variables):
        try:
            yield mark
        finally:
            processes.end(mark)


def _cache(folder: Path) -> Path:
    """Everything that was fetched, but not the warm Spark server of others on this machine."""
    made = folder / "cache"
    made.mkdir()
    for entry in jars.cache().resolve().iterdir():
        if entry.name != "spark":
            (made / entry.name).symlink_to(entry)
    return made
