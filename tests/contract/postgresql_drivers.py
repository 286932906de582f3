"""PostgreSQL in the contract tests: tables as a polled source and as a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import psycopg
import pytest

import devservers
from dataflow_assets.connectors.postgresql import (
    PostgresqlCdcSource,
    PostgresqlSink,
    PostgresqlSource,
)
from dataflow_assets.contracts import Sink, Source, Target
from devservers import Proxy
from tests import arrivals
from tests.contract.drivers import (
    Row,
    SinkDriver,
    SourceDriver,
    pairs,
)
from tests.contract.remote import SECRET, Remote, proxied


class _Database(Remote):
    """A table in PostgreSQL, at either end of a flow."""

    table: ClassVar[str]
    request: pytest.FixtureRequest
    down = r"no connection to 127\.0\.0\.1:\d+: .*Connection refused"
    denied = r"no connection to 127\.0\.0\.1:\d+: .*nobody_here.*; check user"

    def connect(self) -> None:
        """Where the table is."""
        self.server: devservers.PostgreSQL = self.request.getfixturevalue("postgresql")
        self.dsn = self.seen = self.server.dsn()
        self.schema: str = self.request.getfixturevalue("schema")

    def through(self) -> tuple[Proxy, ...]:
        proxy = proxied(self.server.port, self.request.addfinalizer)
        self.seen = self.dsn.replace(f":{self.server.port}/", f":{proxy.port}/")
        return (proxy,)

    def wrong_credentials(self) -> None:
        self.seen = self.seen.replace("postgres@", f"nobody_here:{SECRET}@")

    def alter(self) -> None:
        self._execute("alter table {}.{} rename column name to renamed")

    def mend(self) -> None:
        self._execute("alter table {}.{} rename column renamed to name")

    def drop(self) -> None:
        self._execute("drop table {}.{}")

    def _execute(self, sql: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.format(self.schema, self.table).encode())


class Postgresql(SinkDriver, _Database):
    type = "postgresql"
    table = "target"
    altered = (
        r'writing to postgresql/\S+/target: column "name" of relation "target" does not exist '
        r"\(42703\); a column is missing: was the table altered\? the next run reads its columns"
    )
    dropped = (
        r"table s_\w+\.target (does not exist at postgresql/\S+; create it"
        r"|of postgresql/\S+ was dropped while the flow ran; create it again)"
        r", or set autoCreateTable: true"
    )
    in_task = "postgresql.before-commit"
    failpoints = (
        "drain.begun",
        "postgresql.begin",
        "postgresql.copy",
        "postgresql.before-commit",
        "postgresql.after-commit",
        "drain.passed",
        "postgresql.finish",
        "drain.finished",
    )

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.connect()
        columns = f"id bigint not null, name text, {arrivals.IDENTITY}"
        self._execute(f"create table {{}}.{{}} ({columns})")

    def declare(self) -> Sink:
        return PostgresqlSink(connection_string=self.seen, table=f"{self.schema}.target")

    def busy(self, request: bytes) -> bool:
        return b"name-2" in request

    def final(self, request: bytes) -> bool:
        return b"COMMIT" in request

    def rows(self) -> list[Row]:
        with psycopg.connect(self.dsn) as connection:
            sql = f"select id, name from {self.schema}.target order by 1, 2"
            return [(int(id_), str(name)) for id_, name in connection.execute(sql)]

    def arrived(self) -> list[list[Row]]:
        return [pairs(arrivals.postgresql(self.dsn, f"{self.schema}.target"))]

    def rejected(self) -> list[str]:
        with psycopg.connect(self.dsn) as connection:
            sql = f"select reason from {self.schema}.dataflow_rejected order by 1"
            return [str(reason) for (reason,) in connection.execute(sql)]

    def rebuild(self, rows: Sequence[Row]) -> None:
        """As a migration does: a copy takes the table's name."""
        self._execute("create table {0}.rebuilt (like {0}.{1} including all)")
        with psycopg.connect(self.dsn) as connection:
            sql = f"insert into {self.schema}.rebuilt values (%s, %s)".encode()
            connection.cursor().executemany(sql, rows)
        self._execute("drop table {}.{}")
        self._execute("alter table {}.rebuilt rename to {}")

    def lose(self, target: Target) -> None:
        for table in ("dataflow_checkpoint_partition", "dataflow_checkpoint"):
            self._execute(f"delete from {{}}.{table} where flow = '{target.flow}'")

    def move(self, target: Target, offset: int) -> None:
        where = f"where flow = '{target.flow}' and partition = '0'"
        moved = f"update {{}}.dataflow_checkpoint_partition set next_offset = {offset}"
        self._execute(f"{moved} {where}")


class PostgresqlTable(SourceDriver, _Database):
    """Read by its key alone: the targets have the same two columns."""

    type = "postgresql"
    table = "source"
    columns = True
    altered = r"delivers columns that the target lacks: renamed; the target has id, name: add them"
    dropped = r"table of postgresql/\S+ does not exist: it was dropped, or never made\. Create it"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.connect()
        self._execute("create table {}.{} (id bigint primary key, name text)")

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        assert not raw, "a table holds no raw messages"
        with psycopg.connect(self.dsn) as connection:
            sql = f"insert into {self.schema}.source values (%s, %s)".encode()
            connection.cursor().executemany(sql, rows)

    def declare(self) -> Source:
        return PostgresqlSource(connection_string=self.seen, table=f"{self.schema}.source")

    def busy(self, request: bytes) -> bool:
        return b"COPY" in request

    final = busy


class PostgresqlLog(SourceDriver, _Database):
    """Followed from a slot that was there before the rows: the stream, without a snapshot."""

    type = "postgresql-cdc"
    table = "followed"
    columns = True
    altered = None  # the log has the columns as they were when rows were changed
    dropped = r"table s_\w+\.followed does not exist at \S+: create it, or fix `tables`"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.connect()
        self._execute("create table {}.{} (id bigint primary key, name text)")
        self._execute("create publication {0} for table {0}.{1}")
        self._execute("select pg_create_logical_replication_slot('{}', 'pgoutput')")
        request.addfinalizer(self._end)

    def _end(self) -> None:
        self._execute("drop publication if exists {}")
        self._execute(
            "select pg_terminate_backend(active_pid, 5000) from pg_replication_slots "
            "where slot_name = '{}' and active_pid is not null"
        )
        self._execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots "
            "where slot_name = '{}'"
        )

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        assert not raw, "a table holds no raw messages"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for row in rows:  # a transaction each: a span does not cut one
                sql = f"insert into {self.schema}.followed values (%s, %s)".encode()
                connection.execute(sql, row)

    def declare(self) -> Source:
        return PostgresqlCdcSource(
            connection_string=self.seen,
            slot_name=self.schema,
            publication_name=self.schema,
            tables=(f"{self.schema}.followed",),
            snapshot_mode="never",
        )

    def busy(self, request: bytes) -> bool:
        """The read of a stretch, and not the look before it that plans it."""
        return b"peek_binary_changes" in request

    def final(self, request: bytes) -> bool:
        """That look too: it has the first of them."""
        return b"START_REPLICATION" in request or self.busy(request)
