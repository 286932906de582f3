"""Replays of a flow that keeps its rejected records in two schemas of PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets import failpoints
from dataflow_assets.connectors.memory import MemoryOffsetSource
from dataflow_assets.connectors.postgresql import PostgresqlSink
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.rejected.table import PostgresqlRejected
from dataflow_assets.contracts import OffsetSlice, Rejection, Rejects, Run
from dataflow_assets.errors import TransientError
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.runs.replay import replay
from dataflow_assets.sdk.sql_table.rejected import rejected_row


class Schemas:
    """Two tables, each with the records that it has rejected in its own schema."""

    def __init__(self, engine: SparkSession, dsn: str, names: list[str]) -> None:
        self.engine, self.dsn, self.names = engine, dsn, names
        sinks = [
            PostgresqlSink.model_validate({"connectionString": dsn, "table": f"{name}.t{n}"})
            for n, name in enumerate(names)
        ]
        branches = (Branch(sinks[0]), Branch(sinks[1], routes=("other",)))
        source = MemoryOffsetSource(store="none", topic="t")
        policies = Policies(rejects=Rejects())
        self.flow = Flow("ns", uuid.uuid4().hex, source, branches, policies, hash="h")
        self._offset = 0
        for n, name in enumerate(names):
            self.query(f"create table {name}.t{n} (id int, name text)")

    def query(self, sql: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def reject(self, schema: int, ids: range, stage: str = "sink") -> None:
        target = replace(self.flow.target(self.flow.branches[schema]), source_id="topic-1")
        found = []
        for number in ids:
            self._offset += 1
            found.append(Rejection(self._offset, stage, "", b'{"id": %d}' % number))
        name, link = self.names[schema], TextLink(self.dsn, "tests")
        table, piece = PostgresqlRejected(link, name), OffsetSlice("0", 0, 10**6)
        table.prepare()
        table.append([rejected_row(target, piece, one) for one in found])
        link.close()

    def replay(self) -> None:
        failpoints.arm(failpoints.from_environment())
        list(replay(self.flow, lambda: self.engine, Run()))

    def cut(self, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
        with monkeypatch.context() as patch:
            patch.setenv("DATAFLOW_FAILPOINT", f"{point}:raise")
            patch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
            with pytest.raises(TransientError, match=point):
                self.replay()
        failpoints.arm(None)

    def ids(self, schema: int) -> list[object]:
        sql = f"select id from {self.names[schema]}.t{schema} order by 1"
        return [id_ for (id_,) in self.query(sql)]

    def waiting(self) -> int:
        counts = "select count(*) from {}.dataflow_rejected where replayed_at is null"
        return sum(int(str(self.query(counts.format(name))[0][0])) for name in self.names)


@pytest.fixture
def schemas(
    postgresql: devservers.PostgreSQL, schema: str, engine: SparkSession
) -> Iterator[Schemas]:
    other = f"{schema}_other"
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"create schema {other}".encode())
        yield Schemas(engine, postgresql.dsn(), [schema, other])
        connection.execute(f"drop schema {other} cascade".encode())


def test_what_one_schema_has_back_is_remembered_whatever_waits_in_the_other(
    schemas: Schemas, monkeypatch: pytest.MonkeyPatch
) -> None:
    schemas.reject(1, range(7, 8))
    schemas.cut(monkeypatch, "postgresql.replayed")
    assert schemas.ids(1) == [7]
    schemas.reject(0, range(1_000, 1_600), "decode")
    schemas.replay()
    assert schemas.ids(1) == [7, *range(1_000, 1_600)]
    assert schemas.ids(0) == list(range(1_000, 1_600))
    assert schemas.waiting() == 0


@pytest.mark.parametrize("point", ["replay.begun", "postgresql.before-commit", "replay.passed"])
def test_a_part_of_one_schema_is_ended_although_the_other_has_more(
    schemas: Schemas, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    schemas.reject(1, range(1, 4))
    schemas.cut(monkeypatch, point)
    schemas.reject(0, range(4, 5), "decode")
    schemas.query(f"delete from {schemas.names[1]}.dataflow_rejected where body = '{{\"id\": 2}}'")
    schemas.replay()
    assert schemas.ids(0) == [4]
    assert schemas.ids(1) == ([1, 2, 3, 4] if point == "replay.passed" else [1, 3, 4])
    assert schemas.waiting() == 0
