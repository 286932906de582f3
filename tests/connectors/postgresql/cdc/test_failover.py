"""A standby that is promoted has the slot, and the flow goes on there; one without it stops."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.errors import PermanentError, TransientError
from tests.connectors.postgresql.cdc.followed import Followed

STANDBY = {
    "hot_standby_feedback": "on",
    "sync_replication_slots": "on",
    "primary_slot_name": "physical",
}


class Pair:
    """A server, and its standby, which is promoted when the server is gone."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.first = devservers.PostgreSQL(folder / "first")
        self.first.start()
        self.ask(self.first, "SELECT pg_create_physical_replication_slot('physical', true)")
        self.first.stop()  # its files are a backup now
        shutil.copytree(folder / "first/data", folder / "second/data")
        shutil.chown(folder / "second/data", *_owner(folder / "first/data"))
        for path in (folder / "second/data").rglob("*"):
            shutil.chown(path, *_owner(folder / "first/data"))
        (folder / "second/data/standby.signal").touch()
        stack.enter_context(self.first)
        conninfo = f"host=127.0.0.1 port={self.first.port} user=postgres dbname=postgres"
        config = {**STANDBY, "primary_conninfo": conninfo}
        self.second = devservers.PostgreSQL(folder / "second", config=config)
        stack.enter_context(self.second)

    def ask(self, server: devservers.PostgreSQL, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()

    def caught_up(self) -> None:
        """The standby has all, and knows the slots as they are now."""
        ((end,),) = self.ask(self.first, "SELECT pg_current_wal_flush_lsn()")
        self._until(f"SELECT pg_last_wal_replay_lsn() >= '{end}'")

    def synchronized(self, followed: Followed) -> None:
        """The standby takes a slot over once it has moved on the first server."""
        found = "SELECT count(*) FROM pg_replication_slots WHERE synced AND NOT temporary"
        deadline = time.monotonic() + 60
        while self.ask(self.second, found) != [(1,)]:
            assert time.monotonic() < deadline, "the standby does not get the slot"
            followed.run("UPDATE source SET name = name || '.' WHERE id = 50")
            self.ask(self.first, "SELECT pg_log_standby_snapshot()")
            followed.drain()
            self.caught_up()
            time.sleep(0.3)

    def promote(self) -> None:
        self.first.kill()
        self.ask(self.second, "SELECT pg_promote(true, 60)")

    def _until(self, query: str) -> None:
        deadline = time.monotonic() + 60
        while self.ask(self.second, query) != [(True,)]:
            assert time.monotonic() < deadline, query
            time.sleep(0.1)


def _owner(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(tmp_path, stack)


def test_a_standby_that_is_promoted_is_followed_from_where_the_flow_was(
    pair: Pair, engine: SparkSession
) -> None:
    followed = Followed(pair.first.dsn(), "public", engine)
    followed.make("id int PRIMARY KEY, name text")
    followed.run("INSERT INTO source SELECT i, 'row ' || i FROM generate_series(1, 100) i")
    followed.drain()
    followed.run(
        "UPDATE source SET name = 'changed' WHERE id < 10; DELETE FROM source WHERE id > 90"
    )
    followed.drain()
    pair.synchronized(followed)
    followed.run("INSERT INTO source VALUES (101, 'before'); DELETE FROM source WHERE id = 1")
    pair.caught_up()
    pair.promote()
    followed.dsn = pair.second.dsn()
    followed.run("INSERT INTO source VALUES (102, 'after'); UPDATE source SET id = -2 WHERE id = 2")
    assert followed.drain() == 5
    assert followed.same()
    assert followed.drain() == 0


@pytest.mark.full
def test_a_standby_without_the_slot_stops_the_flow(pair: Pair, engine: SparkSession) -> None:
    followed = Followed(pair.first.dsn(), "public", engine)
    followed.make("id int PRIMARY KEY, name text")
    followed.drain()
    pair.caught_up()
    followed.dsn, followed.patience = pair.second.dsn(), 0.5
    with pytest.raises(TransientError, match=r"is a standby\. Tables are followed at the primary"):
        followed.drain()
    pair.promote()
    followed.run("INSERT INTO source VALUES (1, 'a')")
    with pytest.raises(PermanentError, match=r"is gone: it was dropped, or the server is a copy"):
        followed.drain()
