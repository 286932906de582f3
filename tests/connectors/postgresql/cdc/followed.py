"""A flow that follows tables of one schema into a target beside them, without Spark."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql import SparkSession

from dataflow_assets.connectors.postgresql import PostgresqlCdcSource, PostgresqlSink
from dataflow_assets.connectors.postgresql.cdc import slot
from dataflow_assets.connectors.postgresql.cdc.held_snapshots import HELD
from dataflow_assets.connectors.postgresql.cdc.position import Lsn, parse
from dataflow_assets.connectors.postgresql.pool import lent_to_source
from dataflow_assets.contracts import Limit, Positions, Rejects, Run, Sink, Span
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.formats.rows import objects
from dataflow_assets.records.chain import Transformation
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.replay import replay
from dataflow_assets.runs.request import Patience, Report, Request, Start

UPSERTED = {"upsertMode": True, "conflictKey": "id", "deleteMode": "hard"}
CHECKPOINT = Start()
KEYED = "id int PRIMARY KEY, name text"


@dataclass
class Followed:
    """Table `source`, and `target` with the same columns; slot and publication of their schema."""

    dsn: str
    schema: str
    engine: SparkSession
    options: dict[str, Any] = field(default_factory=dict)
    sink_options: dict[str, Any] = field(default_factory=lambda: dict(UPSERTED))
    steps: tuple[Transformation, ...] = ()
    limit: Limit = field(default_factory=Limit)
    patience: float = 20
    rejects: Rejects = field(default_factory=lambda: Rejects("fail"))

    def run(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f'SET search_path TO "{self.schema}", public'.encode())
            cursor = connection.execute(query.encode(), arguments or None)
            return cursor.fetchall() if cursor.description else []

    def make(self, columns: str) -> None:
        """Source and target with these columns, the first of which is the key."""
        self.run(f"CREATE TABLE source ({columns})")
        self.run("CREATE TABLE target (LIKE source INCLUDING ALL)")

    @property
    def source(self) -> PostgresqlCdcSource:
        config = {
            "connectionString": self.dsn,
            "slotName": self.schema,
            "publicationName": self.schema,
            "tables": [f"{self.schema}.source"],
        }
        return PostgresqlCdcSource.model_validate({**config, **self.options})

    @property
    def sink(self) -> PostgresqlSink:
        config = {"connectionString": self.dsn, "table": f"{self.schema}.target"}
        return PostgresqlSink.model_validate({**config, **self.sink_options})

    @property
    def flow(self) -> Flow:
        rules = Policies(self.limit, rejects=self.rejects)
        branches = (Branch(self.sink),)
        return Flow("followed", self.schema, self.source, branches, rules, self.steps, hash="h")

    def drain(self, start: Start = CHECKPOINT) -> int:
        """To the end that is visible now; how many rows were stored."""
        return sum(report.delta.rows for report in self.reports(start))

    def reports(self, start: Start = CHECKPOINT) -> Iterator[Report]:
        order = Request(run=Run(), start=start, patience=Patience(self.patience, 0.01, 0.05))
        return drain(self.flow, lambda: self.engine, order)

    def killed_at(self, failpoint: str, nth: int = 1) -> bool:
        """Drains in a process of its own that dies there; False: it did not get there."""
        child = os.fork()
        if child == 0:  # what the parent has open is left alone: no handler runs
            os.environ["DATAFLOW_FAILPOINT"] = f"{failpoint}:kill:{nth}"
            os.environ["DATAFLOW_FAILPOINT_TOKEN"] = uuid.uuid4().hex
            try:
                self.drain()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL

    def replay(self) -> tuple[int, int]:
        """Puts back what was rejected: how many rows were stored, how many rejected again."""
        done = [*replay(self.flow, lambda: self.engine, Run())]
        return sum(one.rows for one in done), sum(one.rejected_again for one in done)

    def wait_until_free(self) -> None:
        """Until nobody reads the slot: the server notices the end of a connection late."""
        with lent_to_source(self.dsn) as link:
            slot.wait_for_readers(link, self.source)

    def position(self) -> Positions:
        checkpoint = self.sink.peek(self.flow.target(self.flow.branches[0]))
        assert checkpoint is not None
        return checkpoint.positions

    def plan(self, after: Positions | None = None) -> Span:
        """Of a session of its own, which lets go of a snapshot."""
        with self._letting_go(), closing(self.source.open("followed/plan")) as session:
            return session.plan(session.start() if after is None else after, self.limit)

    def read(
        self, after: Positions | None = None, metadata: frozenset[str] = frozenset()
    ) -> list[pa.RecordBatch]:
        """What the source delivers from a position on, to the end that is visible now."""
        with self._letting_go(), closing(self.source.open("followed/read")) as session:
            at = session.start() if after is None else after
            span = session.plan(at, self.limit, session.end())
            return [b for piece in span.slices for b in self.source.batches(piece, metadata)]

    def bodies(self, after: Positions | None = None) -> list[bytes]:
        """The same as JSON, as steps and raw mode see it."""
        return [row for batch in self.read(after) for row in objects(batch)]

    def start(self) -> Positions:
        """Makes slot and publication, and says where the log ends."""
        with closing(self.source.open("followed/start")) as session:
            return session.start("latest")

    def log_end(self) -> Lsn:
        """Up to which the log can be read."""
        return Lsn.parse(self.run("SELECT pg_current_wal_flush_lsn()::text")[0][0])

    def advanced(self) -> Lsn:
        """Where the changes begin, to which the slot moves."""
        found = parse(self.start()["wal"])
        assert found is not None
        self.run("SELECT pg_replication_slot_advance(%s, %s)", self.schema, str(found.lsn))
        return found.lsn

    def rows(self, table: str = "target", columns: str = "*") -> list[tuple[Any, ...]]:
        return self.run(f"SELECT {columns} FROM {table} ORDER BY 1")

    def same(self, columns: str = "*") -> bool:
        """Whether the target has exactly the rows of the source."""
        return self.rows("target", columns) == self.rows("source", columns)

    def but(self, **options: Any) -> Followed:
        """The same with other options of the source."""
        return replace(self, options={**self.options, **options})

    @contextmanager
    def _letting_go(self) -> Iterator[None]:
        """Of snapshots, whose tables are locked against changes."""
        try:
            yield
        finally:
            for _, key in [*HELD._held]:
                HELD.let_go(key)

    def remove(self) -> None:
        """Slot and publication, and snapshots that are held."""
        with self._letting_go():
            pass
        self.run(
            "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots "
            "WHERE slot_name LIKE %s AND active_pid IS NOT NULL",
            f"{self.schema}%",
        )
        self.run(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE slot_name = %s",
            self.schema,
        )
        self.run(f'DROP PUBLICATION IF EXISTS "{self.schema}"')


@dataclass
class Elsewhere(Followed):
    """Into a target of any system."""

    into: Sink | None = None

    @property
    def sink(self) -> Sink:  # type: ignore[override]
        assert self.into is not None
        return self.into


def unmarked(positions: Positions) -> Positions:
    """As versions have stored them that did not look at the numbers of tables and publication."""
    found = {name: json.loads(str(at)) for name, at in positions.items()}
    return {name: json.dumps({**at, "marks": []}) for name, at in found.items()}


def tuples(batches: Sequence[pa.RecordBatch], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows as tuples of these columns."""
    rows: list[Mapping[str, Any]] = [row for batch in batches for row in batch.to_pylist()]
    return [tuple(row[name] for name in names) for row in rows]


def created(followed: Followed) -> list[tuple[object, ...]]:
    """The slot and the publication of the flow, as far as they exist."""
    return followed.run(
        "SELECT slot_name FROM pg_replication_slots WHERE slot_name = %s "
        "UNION ALL SELECT pubname FROM pg_publication WHERE pubname = %s",
        *(followed.schema, followed.schema),
    )
