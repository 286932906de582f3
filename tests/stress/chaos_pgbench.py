"""A database under pgbench's own transactions, followed by one flow into a copy beside it.

Four tables from one slot, the transactions of pgbench (TPC-B) by clients that never wait for the
flow, now and then a new column. Accounts are closed, opened again and given other numbers as well:
deletes and changes of keys. With the clients stopped, the copy is compared row for row.

Runs plan short stretches, as a lane does, so that one which is behind reads several ahead.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import psycopg
from ruamel.yaml import YAML

from tests.forked import PART_BYTES
from tests.stress.chaos_driver import Driver
from tests.stress.chaos_model import Verdict
from tests.systems import Config, Fixtures

CLIENTS, ACCOUNTS, TELLERS, BRANCHES = 20, 2_000, 20, 2
EVERY = 0.5  # seconds between two comparisons
WAIT = 120.0  # seconds in which a server that was killed is back
COLUMNS = 8  # that `accounts` gets at most
PAUSE = 0.1  # seconds of a client between two transactions: others need the machine too
STRETCH = 256 * 1024  # bytes of the log that a stretch of a run has
_TABLES = """
CREATE TABLE branches (bid int PRIMARY KEY, bbalance int, filler char(88));
CREATE TABLE tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84));
CREATE TABLE accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84));
CREATE TABLE history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
ALTER TABLE history REPLICA IDENTITY FULL;
"""
_FILLED = """
INSERT INTO branches SELECT i, 0 FROM generate_series(1, {b}) i;
INSERT INTO tellers SELECT i, 1 + i % {b}, 0 FROM generate_series(1, {t}) i;
INSERT INTO accounts SELECT i, 1 + i % {b}, 0, 'x' FROM generate_series(1, {a}) i;
"""
_TRANSACTION = """
BEGIN;
{account};
SELECT abalance FROM accounts WHERE aid = {aid};
UPDATE tellers SET tbalance = tbalance + {delta} WHERE tid = {tid};
UPDATE branches SET bbalance = bbalance + {delta} WHERE bid = {bid};
INSERT INTO history VALUES ({tid}, {bid}, {aid}, {delta}, clock_timestamp());
END;
"""
_CHANGED = "UPDATE accounts SET abalance = abalance + {delta}{more} WHERE aid = {aid}"
_CLOSED = "DELETE FROM accounts WHERE aid = {aid}"
_OPENED = (
    "INSERT INTO accounts VALUES ({aid}, {bid}, {delta}, 'x') "
    "ON CONFLICT (aid) DO UPDATE SET abalance = excluded.abalance"
)
_MOVED = (
    "UPDATE accounts SET aid = -aid WHERE aid = {aid} "
    "AND NOT EXISTS (SELECT FROM accounts WHERE aid = -({aid}))"
)
_ACCOUNTS = (_CHANGED,) * 7 + (_CLOSED, _OPENED, _MOVED)
"""What a transaction does to its account; one that has moved has the negative number."""
_SUM = "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM {} t"
_LACKS = "SELECT count(*) FROM (SELECT t::text FROM {} t EXCEPT ALL SELECT t::text FROM {} t) r"
KEYS = {"accounts": "aid", "tellers": "tid", "branches": "bid", "history": None}


@dataclass
class Sent:
    """What the clients have committed, for the report."""

    sent: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    ends: ClassVar[str] = "what the clients have committed"


class Pgbench:
    """The four tables, their copies, and the clients."""

    server: ClassVar[str] = "postgresql"
    broker: ClassVar[str] = "postgresql"
    kinds: ClassVar[tuple[str, ...]] = ()
    steps: ClassVar[tuple[str, ...]] = ()
    rejects: ClassVar[bool] = False

    def __init__(self, given: Fixtures, chance: random.Random, folder: Path) -> None:
        self.model = Sent()
        self._dsn = given.getfixturevalue("postgresql").dsn()
        self._schema = given.getfixturevalue("schema")
        self._chance = chance
        self._columns = 0
        self._running, self._over = threading.Event(), threading.Event()
        self._asked = 0.0
        self._make()
        os.environ[PART_BYTES] = str(STRETCH)
        self.manifest = self._written(folder)
        given.addfinalizer(self._end)
        self._clients = [threading.Thread(target=self._client, args=(n,)) for n in range(CLIENTS)]
        self._running.set()
        for client in self._clients:
            client.start()

    def send(self, count: int) -> None:
        """Waits for so many transactions; the clients go on. Now and then there is a new column."""
        self._running.set()
        wanted, deadline = len(self.model.sent) + count, time.monotonic() + WAIT
        if self._columns < COLUMNS and self._chance.random() < 0.3:
            self._add_column()
        while len(self.model.sent) < wanted:
            assert time.monotonic() < deadline, "the clients commit nothing"
            time.sleep(0.02)

    def stored(self, driver: Driver) -> bool:  # noqa: ARG002 - the tables tell
        """Whether the copy has all rows; the clients wait meanwhile."""
        self._running.clear()
        if time.monotonic() - self._asked < EVERY:
            return False
        self._asked = time.monotonic()
        return all(self._sum(table) == self._sum(f"{table}_copy") for table in KEYS)

    def verdict(self) -> Verdict:
        """What the copy lacks, and what it has too much; then the clients go on."""
        found = Verdict()
        for table in KEYS:
            ((lost,),) = self._run(_LACKS.format(table, f"{table}_copy"))
            ((more,),) = self._run(_LACKS.format(f"{table}_copy", table))
            examples = (f"{table}: {lost} lost, {more} more",) if lost or more else ()
            found += Verdict(lost=lost, doubled=more, examples=examples)
        self._running.set()
        return found

    def _sum(self, table: str) -> tuple[Any, ...]:
        return self._run(_SUM.format(table))[0]

    def _make(self) -> None:
        self._run(_TABLES)
        for table in KEYS:
            self._run(f"CREATE TABLE {table}_copy (LIKE {table} INCLUDING INDEXES)")
        self._run(f"CREATE PUBLICATION {self._schema} FOR TABLE {', '.join(KEYS)}")
        self._run(f"SELECT pg_create_logical_replication_slot('{self._schema}', 'pgoutput')")
        self._run(_FILLED.format(a=ACCOUNTS, t=TELLERS, b=BRANCHES))

    def source(self) -> Config:
        """How the flow reads the four tables."""
        return {
            "connectionString": self._dsn,
            "slotName": self._schema,
            "publicationName": self._schema,
            "tables": [f"{self._schema}.{table}" for table in KEYS],
            "snapshotMode": "never",
            "schemaChanges": "add",
        }

    def _written(self, folder: Path) -> Path:
        main, *others = KEYS
        routes = [
            {"condition": f"metadata.table == '{self._schema}.{table}'", "sink": self._sink(table)}
            for table in others
        ]
        document = {
            "apiVersion": "dataflow.dataflow.io/v1",
            "kind": "DataFlow",
            "metadata": {"name": f"pgbench-{uuid.uuid4().hex[:8]}"},
            "spec": {
                "source": {"type": "postgresql-cdc", "config": self.source()},
                "sink": self._sink(main),
                "transformations": [{"type": "router", "config": {"routes": routes}}],
            },
        }
        path = folder / "pgbench.yaml"
        YAML().dump(document, path)
        return path

    def _sink(self, table: str) -> Config:
        config = {"connectionString": self._dsn, "table": f"{self._schema}.{table}_copy"}
        if key := KEYS[table]:
            config |= {"upsertMode": True, "conflictKey": key, "deleteMode": "hard"}
        return {"type": "postgresql", "config": config}

    def _add_column(self) -> None:
        name = f"more_{self._columns}"
        try:
            self._run(f"ALTER TABLE accounts ADD COLUMN IF NOT EXISTS {name} bigint")
        except psycopg.Error:
            return  # the server was killed a moment ago
        self._columns += 1

    def _client(self, number: int) -> None:
        """Commits until the end; a server that was killed is asked again."""
        chance = random.Random(number)
        while not self._over.is_set():
            try:
                with self._connected() as connection:
                    while not self._over.is_set():
                        if not self._running.wait(0.1):
                            continue
                        done = connection.execute(self._transaction(chance).encode())
                        self.model.sent.append(number)
                        self._count(done)
                        time.sleep(PAUSE)
            except psycopg.Error:
                time.sleep(0.2)

    def _count(self, done: psycopg.Cursor[Any]) -> None:
        """Rows that the statements of a transaction have changed."""
        while True:
            verb, _, rows = (done.statusmessage or "").partition(" ")
            if verb in {"UPDATE", "DELETE"}:
                self.model.counts[f"{verb.lower()}s"] += int(rows)
            if not done.nextset():
                return

    def _transaction(self, chance: random.Random) -> str:
        known, delta = self._columns, chance.randint(-5_000, 5_000)
        more = f", more_{chance.randrange(known)} = {delta}" if known else ""
        tid = chance.randint(1, TELLERS)
        aid, bid = chance.choice((1, 1, 1, -1)) * chance.randint(1, ACCOUNTS), 1 + tid % BRANCHES
        account = chance.choice(_ACCOUNTS).format(aid=aid, bid=bid, delta=delta, more=more)
        return _TRANSACTION.format(account=account, aid=aid, tid=tid, bid=bid, delta=delta)

    def _run(self, query: str) -> list[tuple[Any, ...]]:
        with self._connected() as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self._dsn, autocommit=True, connect_timeout=5) as connection:
            connection.execute(f'SET search_path TO "{self._schema}"'.encode())
            yield connection

    def _end(self) -> None:
        os.environ.pop(PART_BYTES, None)
        self._over.set()
        for client in self._clients:
            client.join()
        self._run(
            "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots "
            f"WHERE slot_name = '{self._schema}' AND active_pid IS NOT NULL"
        )
        self._run(f"SELECT pg_drop_replication_slot('{self._schema}')")
        self._run(f"DROP PUBLICATION {self._schema}")
