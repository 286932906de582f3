"""A driver for the ClickHouse sink's tests: the loop of one flow without Spark or a source."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import clickhouse_connect

from dataflow_assets.connectors.clickhouse import ClickhouseSink
from dataflow_assets.contracts import (
    Chunk,
    OffsetSlice,
    PartSlice,
    Positions,
    Receipt,
    Rejects,
    Run,
    SinkSession,
    Slice,
    Span,
    Target,
    Ticket,
)
from tests.connectors.postgresql.driver import SOURCE, chunk

__all__ = ["SOURCE", "TARGET", "Place", "chunk", "start", "store", "write"]

TARGET = Target("shop/orders", "clickhouse:orders", "m1", "orders", "t1", Rejects("table"))
COLUMNS = "id Int64, name Nullable(String)"


@dataclass
class Place:
    """A database of one server, with a sink on a table in it."""

    dsn: str
    table: str = "orders"
    options: dict[str, Any] = field(default_factory=dict)

    def sink(self, **options: Any) -> ClickhouseSink:
        config = {"connectionString": self.dsn, "table": self.table}
        return ClickhouseSink.model_validate({**config, **self.options, **options})

    def make(self, columns: str = COLUMNS, rest: str = "order by id", window: int = 100) -> None:
        self.run(
            f"create table {self.table} ({columns}) engine = MergeTree {rest} "
            f"settings non_replicated_deduplication_window = {window}"
        )

    def run(self, query: str) -> list[tuple[Any, ...]]:
        with clickhouse_connect.get_client(dsn=self.dsn) as client:
            return [tuple(row) for row in client.query(query).result_rows]

    def rows(self, columns: str = "*", table: str | None = None) -> list[tuple[Any, ...]]:
        return self.run(f"select {columns} from {table or self.table} order by 1")

    def rejected(self) -> list[tuple[Any, ...]]:
        columns = "offset, n, stage, reason, body"
        return self.run(f"select {columns} from {self.table}_rejected final order by 1")


def write(
    sink: ClickhouseSink, ticket: Ticket, piece: Slice, *chunks: Chunk, complete: bool | None = None
) -> Receipt:
    """What a task does with one slice; sink and ticket travel as they do to Spark."""
    sink, ticket = pickle.loads(pickle.dumps((sink, ticket)))  # noqa: S301 - our own
    writer = sink.writer(ticket, piece)
    try:
        for one in chunks:
            writer.write(one)
        return writer.close(isinstance(piece, PartSlice) if complete is None else complete)
    finally:
        writer.abort()


def start(
    sink: ClickhouseSink,
    positions: Positions | None = None,
    run: str = "r1",
    target: Target = TARGET,
) -> SinkSession:
    """A session that has begun at these positions, unless it has a checkpoint."""
    session = sink.open(target, Run(run, "h1", 1))
    if not session.checkpoint.positions:
        session.restart(positions or {"0": 0}, "t1")
    return session


def store(
    sink: ClickhouseSink,
    *batches: Sequence[Mapping[str, Any]],
    session: SinkSession | None = None,
    way: str | None = None,
) -> SinkSession:
    """One micro-batch of partition 0, one chunk per batch; returns the session for the next."""
    target = TARGET if way is None else replace(TARGET, rejects=Rejects(way))  # type: ignore[arg-type]
    session = session or start(sink, target=target)
    first = session.checkpoint.positions["0"]
    assert isinstance(first, int)
    upto = first + sum(map(len, batches))
    span = session.begin(Span((OffsetSlice("0", first, upto),)))
    ticket = session.ticket()
    chunks, at = [], first
    for records in batches:
        chunks.append(chunk(ticket, records, at))
        at += len(records)
    receipt = write(sink, ticket, span.slices[0], *chunks)
    session.finish(span, [receipt], SOURCE)
    return session
