"""Test driver of the ClickHouse sink."""

from __future__ import annotations

from typing import Any

import clickhouse_connect
import pytest

import devservers
from dataflow_assets.connectors.clickhouse import ClickhouseSink
from dataflow_assets.contracts import Sink
from tests.contract.drivers import Row, SinkDriver


class Clickhouse(SinkDriver):
    type = "clickhouse"
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
        self.dsn = server.dsn(request.getfixturevalue("database"))
        self.query(
            "create table target (id Int64, name Nullable(String)) engine = MergeTree "
            "order by id settings non_replicated_deduplication_window = 1000"
        )

    def declare(self) -> Sink:
        config = {"connectionString": self.dsn, "table": "target"}
        return ClickhouseSink.model_validate(config)

    def rows(self) -> list[Row]:
        found = self.query("select id, name from target order by 1, 2")
        return [(int(id_), str(name)) for id_, name in found]

    def rejected(self) -> list[str]:
        found = self.query("select reason from target_rejected final order by 1")
        return [str(reason) for (reason,) in found]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with clickhouse_connect.get_client(dsn=self.dsn) as client:
            return [tuple(row) for row in client.query(sql).result_rows]
