"""ClickHouse in the contract tests: tables as a polled source and as a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

import devservers
from dataflow_assets.connectors.clickhouse import ClickhouseSink, ClickhouseSource, client
from dataflow_assets.connectors.clickhouse.table.checkpoint_log import (
    HEAD,
    ClickhouseEntry,
    ClickhousePartition,
    dump,
    fold,
)
from dataflow_assets.connectors.clickhouse.table.checkpoint_table import ClickhouseCheckpointTable
from dataflow_assets.contracts import Source, Target
from devservers import Proxy
from tests import arrivals
from tests.contract.drivers import Row, SinkDriver, SourceDriver, pairs
from tests.contract.remote import SECRET, Remote, proxied


class Clickhouse(SinkDriver, Remote):
    type = "clickhouse"
    down = r"opening clickhouse/\S+/target: .*127\.0\.0\.1.*refused"
    denied = r"Authentication failed: .* \(code 516\); check user and password of the connection"
    altered = (
        r"writing to clickhouse/\S+/target: No such column name in table .*\(code 16\); was the "
        r"table altered\? the next run reads its columns again"
    )
    dropped = (
        r"table d_\w+\.target (does not exist at clickhouse/\S+; create it"
        r"|of clickhouse/\S+ was dropped while the flow ran; create it again)"
        r", or set autoCreateTable: true"
    )
    in_task = "clickhouse.before-insert"
    emptying = "clickhouse.emptying"
    failpoints = (
        "drain.begun",
        "clickhouse.begin",
        "clickhouse.write",
        "clickhouse.recorded",
        "clickhouse.before-insert",
        "clickhouse.inserted",
        "clickhouse.done",
        "drain.passed",
        "clickhouse.finish",
        "drain.finished",
    )

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        server: devservers.ClickHouse = request.getfixturevalue("clickhouse")
        self.server = server
        self.dsn = self.seen = server.dsn(request.getfixturevalue("database"))
        self._asked = client.connect(self.dsn, "tests")  # each connection costs three questions
        request.addfinalizer(self._asked.close)
        self.query(
            "create table target (id Int64, name Nullable(String)) engine = MergeTree "
            "order by tuple() settings non_replicated_deduplication_window = 1000"
        )

    def declare(self) -> ClickhouseSink:
        config = {"connectionString": self.seen, "table": "target"}
        return ClickhouseSink.model_validate(config)

    def rows(self) -> list[Row]:
        found = self.query("select id, name from target order by 1, 2")
        return [(int(id_), str(name)) for id_, name in found]

    def arrived(self) -> list[list[Row]]:
        return [pairs(arrivals.clickhouse(self._asked, "target"))]

    def rejected(self) -> list[str]:
        found = self.query("select reason from target_rejected final order by 1")
        return [str(reason) for (reason,) in found]

    def rebuild(self, rows: Sequence[Row]) -> None:
        self.query("create table rebuilt as target")
        for id_, name in rows:
            self.query(f"insert into rebuilt values ({id_}, '{name}')")
        self.query("exchange tables rebuilt and target")
        self.query("drop table rebuilt sync")

    def lose(self, target: Target) -> None:
        self.query(f"delete from dataflow_ledger where flow = '{target.flow}'")

    def move(self, target: Target, offset: int) -> None:
        database, table = self.declare().place()
        ledger = ClickhouseCheckpointTable(self._asked, database, table, target)
        head = fold(ledger.read()).snapshot()
        moved = {**head.partitions, "0": ClickhousePartition(offset)}
        head = replace(head, n=head.n + 1, generation="by hand", partitions=moved)
        ledger.record(ClickhouseEntry(HEAD, dump(head), "hand", head.epoch, head.n))

    def through(self) -> tuple[Proxy, ...]:
        proxy = proxied(self.server.port, self.request.addfinalizer)
        self.seen = self.dsn.replace(f":{self.server.port}/", f":{proxy.port}/")
        return (proxy,)

    def busy(self, request: bytes) -> bool:
        return b"target" in request and b"Arrow" in request

    final = busy

    def wrong_credentials(self) -> None:
        self.seen = self.seen.replace(self.server.password, SECRET)

    def alter(self) -> None:
        self.query("alter table target rename column name to renamed")

    def mend(self) -> None:
        self.query("alter table target rename column renamed to name")

    def drop(self) -> None:
        self.query("drop table target")

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._asked.query(sql).result_rows]


class ClickhouseTable(SourceDriver, Remote):
    """Read by its key alone: the targets have the same two columns."""

    type = "clickhouse"
    columns = True
    down = r"connecting to table of clickhouse/\S+: no connection to 127\.0\.0\.1:\d+: .*refused"
    denied = r"Authentication failed: .* \(code 516\); check user and password of the connection"
    altered = r"the source delivers columns that the target lacks: renamed"
    dropped = r"table of clickhouse/\S+/source does not exist: it was dropped, or never made"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.server: devservers.ClickHouse = request.getfixturevalue("clickhouse")
        self.dsn = self.seen = self.server.dsn(request.getfixturevalue("database"))
        self.client = client.connect(self.dsn, "tests")
        request.addfinalizer(self.client.close)
        self.client.command(
            "CREATE TABLE source (id Int64, name String) ENGINE = MergeTree ORDER BY id"
        )

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        assert not raw, "a table holds no raw messages"
        if rows:
            self.client.insert("source", rows, ["id", "name"])

    def declare(self) -> Source:
        return ClickhouseSource(
            connection_string=SecretStr(self.seen), table="source", poll_interval=0
        )

    def through(self) -> tuple[Proxy, ...]:
        proxy = proxied(self.server.port, self.request.addfinalizer)
        self.seen = self.dsn.replace(f":{self.server.port}/", f":{proxy.port}/")
        return (proxy,)

    def busy(self, request: bytes) -> bool:
        return b"`#0`" in request  # selected, not counted or compared

    final = busy

    def wrong_credentials(self) -> None:
        self.seen = self.seen.replace(self.server.password, SECRET)

    def alter(self) -> None:
        self.client.command("ALTER TABLE source RENAME COLUMN name TO renamed")

    def mend(self) -> None:
        self.client.command("ALTER TABLE source RENAME COLUMN renamed TO name")

    def drop(self) -> None:
        self.client.command("DROP TABLE source SYNC")
