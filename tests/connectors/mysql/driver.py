"""A driver for the tests of MySQL's sink: the loop of one flow without Spark or a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import devservers
from dataflow_assets.connectors.mysql import MysqlSink
from dataflow_assets.contracts import (
    OffsetSlice,
    Run,
    SinkSession,
    Span,
    Target,
    Totals,
)
from dataflow_assets.spark.process import LOOPBACK
from tests.connectors.postgresql.driver import SOURCE, chunk, write

TARGET = Target("shop/orders", "mysql:orders", "m1", "orders")


@dataclass
class Place:
    """One database of one server, with a sink on a table in it."""

    server: devservers.MariaDB
    database: str
    options: dict[str, Any] = field(default_factory=dict)

    def sink(self, **options: Any) -> MysqlSink:
        where = {
            "host": LOOPBACK,
            "port": self.server.port,
            "user": self.server.user,
            "password": self.server.password,
            "database": self.database,
            "table": "orders",
        }
        return MysqlSink.model_validate({**where, **self.options, **options})

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.execute(*statements, database=self.database)

    def rows(self, columns: str = "*") -> list[tuple[Any, ...]]:
        return self.run(f"SELECT {columns} FROM orders ORDER BY 1")

    def rejected(self) -> list[tuple[int, str]]:
        found = self.run("SELECT `offset`, reason FROM dataflow_rejected ORDER BY 1")
        return [(offset, reason) for offset, reason in found]


class Driving:
    """One flow: each `store` is a micro-batch of one partition."""

    def __init__(self, sink: MysqlSink, target: Target = TARGET) -> None:
        self.sink = sink
        self.session: SinkSession = sink.open(target, Run())
        if not self.session.checkpoint.positions:
            self.session.restart({"0": 0}, "source")

    def store(self, *rows: Mapping[str, Any]) -> Totals:
        """The totals of the branch afterwards."""
        first = cast("int", self.session.checkpoint.positions["0"])
        piece = OffsetSlice("0", first, first + len(rows))
        span, ticket = self.session.begin(Span((piece,))), self.session.ticket()
        receipt = write(self.sink, ticket, piece, chunk(ticket, rows, first))  # type: ignore[arg-type]
        return self.session.finish(span, [receipt], SOURCE).totals


def ids(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The first column."""
    return [row[0] for row in rows]
