"""Trino in the contract tests: tables of an Iceberg catalog as a polled source and as a target."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

import devservers
from dataflow_assets.connectors.trino import TrinoSink, TrinoSource
from dataflow_assets.connectors.trino.client import TrinoClient, literal
from dataflow_assets.contracts import Sink, Source, Target
from devservers import Proxy
from tests.contract.drivers import Row, SinkDriver, SourceDriver
from tests.contract.remote import SECRET, Remote, proxied

_DOWN = r"127\.0\.0\.1:\d+: Connection refused"


class _Tables(Remote):
    """A table of the catalog `lake`, at either end."""

    denied = r"HTTP status 401: .*; Trino refuses the token: check that it has not expired"
    table: ClassVar[str]

    def _make(self, request: pytest.FixtureRequest) -> None:
        self.request = request
        self.server: devservers.Trino = request.getfixturevalue("trino")
        self.schema: str = request.getfixturevalue("trino_schema")
        self.changes: dict[str, Any] = {}
        plain = TrinoSink.model_validate(self._config())
        self.client = TrinoClient(plain, "tests")
        request.addfinalizer(self.client.close)
        self.run(f"CREATE TABLE {self.table} (id bigint NOT NULL, name varchar)")

    def run(self, sql: str) -> int:
        return self.client.run(sql)

    def _config(self) -> dict[str, Any]:
        where = {"serverURL": self.server.uri, "catalog": "lake", "schema": self.schema}
        return {**where, "table": self.table} | self.changes

    def through(self) -> tuple[Proxy, ...]:
        proxy = proxied(self.server.ports["http"], self.request.addfinalizer)
        self.changes["serverURL"] = f"http://127.0.0.1:{proxy.port}"
        return (proxy,)

    def wrong_credentials(self) -> None:
        ca = self.server.authority.ca.read_text()
        self.changes |= {"serverURL": self.server.secure_uri, "ca": ca}
        self.changes["keycloak"] = {"token": SECRET}

    def alter(self) -> None:
        self.run(f"ALTER TABLE {self.table} RENAME COLUMN name TO renamed")

    def mend(self) -> None:
        self.run(f"ALTER TABLE {self.table} RENAME COLUMN renamed TO name")

    def drop(self) -> None:
        self.run(f"DROP TABLE {self.table}")

    def query(self, sql: str) -> list[list[Any]]:
        return self.client.rows(sql)


class Trino(SinkDriver, _Tables):
    type = "trino"
    table = "target"
    down = rf"opening trino/\S+/target: no answer from {_DOWN}"
    altered = (
        r"writing to trino/\S+/target: .*Merge column name does not exist in target table: name "
        r"\(COLUMN_NOT_FOUND\); was the table altered\? the next run reads its columns again"
    )
    dropped = (
        r"table \S+\.target does not exist at trino/\S+; create it, or set autoCreateTable: true"
    )
    in_task = "trino.staged"
    emptying = "trino.emptying"
    failpoints: ClassVar[tuple[str, ...]] = (
        "drain.begun",
        "trino.begin",
        "trino.write",
        "trino.staged",
        "drain.passed",
        "trino.before-commit",
        "trino.recorded",
        "trino.written",
        "trino.committed",
        "drain.finished",
    )

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._make(request)

    def declare(self) -> Sink:
        return TrinoSink.model_validate(self._config() | {"batchFlushIntervalSeconds": 0})

    def busy(self, request: bytes) -> bool:
        return b"MERGE INTO" in request

    final = busy

    def rows(self) -> list[Row]:
        return sorted((id_, name) for id_, name in self.query("SELECT id, name FROM target"))

    def arrived(self) -> list[list[Row]]:
        """A table of Iceberg keeps no order that a query could ask for."""
        return []

    def rejected(self) -> list[str]:
        found = self.query("SELECT id, max(reason) FROM target_rejected GROUP BY id")
        return sorted(str(reason) for _, reason in found)

    def rebuild(self, rows: Sequence[Row]) -> None:
        self.run("DROP TABLE target")
        self.run("CREATE TABLE target (id bigint NOT NULL, name varchar)")
        if rows:
            listed = ", ".join(f"({id_}, {literal(name)})" for id_, name in rows)
            self.run(f"INSERT INTO target VALUES {listed}")

    def lose(self, target: Target) -> None:
        self.run(f"DELETE FROM dataflow_checkpoints WHERE id = {literal(target.id)}")

    def move(self, target: Target, offset: int) -> None:
        where = f"WHERE id = {literal(target.id)}"
        ((text,),) = self.query(f"SELECT state FROM dataflow_checkpoints {where}")
        state = json.loads(text)
        state["checkpoint"]["positions"]["0"] = offset
        changed = f"SET state = {literal(json.dumps(state))}, stamp = 'by hand'"
        self.run(f"UPDATE dataflow_checkpoints {changed} {where}")


class TrinoUpsert(Trino):
    """Rows merged by their key."""

    variant = "upsert"
    upserts = True

    def declare(self) -> Sink:
        keyed = {"upsertMode": True, "conflictKey": "id", "batchFlushIntervalSeconds": 0}
        return TrinoSink.model_validate(self._config() | keyed)


class TrinoTable(SourceDriver, _Tables):
    """Read by its key alone: the targets have the same two columns."""

    type = "trino"
    columns = True
    table = "source"
    down = rf"opening table of trino/\S+/source: no answer from {_DOWN}"
    altered = r"the source delivers columns that the target lacks: renamed"
    dropped = r"table of trino/\S+/source does not exist: it was dropped, or never made"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._make(request)

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        assert not raw, "a table holds no raw messages"
        for first in range(0, len(rows), 5_000):
            listed = ", ".join(f"({id_}, {literal(name)})" for id_, name in rows[first:][:5_000])
            self.run(f"INSERT INTO source VALUES {listed}")

    def declare(self) -> Source:
        return TrinoSource.model_validate(self._config() | {"pollInterval": 0})

    def busy(self, request: bytes) -> bool:
        return b'AS "#0"' in request and b"ORDER BY" in request

    final = busy
