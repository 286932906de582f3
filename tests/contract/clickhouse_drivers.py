"""Test drivers of ClickHouse."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pydantic import SecretStr

import devservers
from dataflow_assets.connectors.clickhouse import ClickhouseSource, client
from dataflow_assets.contracts import Source
from devservers import Proxy
from tests.contract.drivers import Row, SourceDriver
from tests.contract.remote import SECRET, Remote, proxied


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
