"""A driver for the PostgreSQL sink's tests: the loop of one flow without Spark or a source."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

from dataflow_assets.connectors.postgresql import PostgresqlSink
from dataflow_assets.contracts import (
    ABSENT,
    OFFSET,
    OP,
    Chunk,
    OffsetSlice,
    PartSlice,
    Positions,
    Receipt,
    Rejection,
    Run,
    Sent,
    SinkSession,
    Slice,
    SourceSession,
    Span,
    Target,
    Ticket,
)

TARGET = Target("shop/orders", "postgresql:orders", "m1", "orders")


class Folding:
    """A source of which only `fold` is used: finished parts become one position."""

    def fold(self, positions: Positions) -> Positions:
        return {"state": "+".join(str(positions[name]) for name in sorted(positions))}


SOURCE = cast("SourceSession", Folding())


@dataclass
class Place:
    """One schema of one server, with a sink on a table in it."""

    dsn: str
    schema: str
    table: str = "orders"
    options: dict[str, Any] = field(default_factory=dict)

    def sink(self, **options: Any) -> PostgresqlSink:
        config = {"connectionString": self.dsn, "table": f"{self.schema}.{self.table}"}
        return PostgresqlSink.model_validate({**config, **self.options, **options})

    def run(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self.schema)))
            cursor = connection.execute(query.encode(), arguments or None)
            return cursor.fetchall() if cursor.description else []

    def rows(self, columns: str = "*", table: str | None = None) -> list[tuple[Any, ...]]:
        return self.run(f"SELECT {columns} FROM {table or self.table} ORDER BY 1")

    def rejected(self) -> list[tuple[Any, ...]]:
        return self.run('SELECT "offset", n, stage, reason, body FROM dataflow_rejected ORDER BY 1')


def batch(
    schema: pa.Schema, records: Sequence[Mapping[str, Any]], first: int = 0
) -> pa.RecordBatch:
    """Records as a decoder delivers them: absent keys are marked; `_op`, `_offset` may be given."""
    arrays = [pa.array([r.get(f.name) for r in records], f.type) for f in schema]
    offsets = [r.get(OFFSET, first + index) for index, r in enumerate(records)]
    arrays.append(pa.array(offsets, pa.int64()))
    names = [*schema.names, OFFSET]
    masks = [_mask(schema, record) for record in records]
    if any(any(mask) for mask in masks):
        arrays.append(pa.array(masks, pa.binary()))
        names.append(ABSENT)
    if any(OP in r for r in records):
        arrays.append(pa.array([r.get(OP, 0) for r in records], pa.int8()))
        names.append(OP)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _mask(schema: pa.Schema, record: Mapping[str, Any]) -> bytes:
    missing = np.array([name not in record for name in schema.names], np.bool_)
    return np.packbits(missing, bitorder="little").tobytes()


def chunk(
    ticket: Ticket,
    records: Sequence[Mapping[str, Any]],
    first: int = 0,
    rejected: Sequence[Rejection] = (),
    seen: int | None = None,
) -> Chunk:
    rows = batch(ticket.schema, records, first)
    offsets = rows.column(OFFSET).to_pylist()
    last = max([*offsets, *(r.offset for r in rejected), first - 1])
    sent = {offset: Sent(f"body {offset}".encode()) for offset in offsets}
    return Chunk(rows, rejected, seen if seen is not None else last + 1, 10 * len(records), sent)


def write(
    sink: PostgresqlSink, ticket: Ticket, piece: Slice, *chunks: Chunk, complete: bool | None = None
) -> Receipt:
    """What a task does with one slice; sink and ticket travel as they do to Spark."""
    sink, ticket = pickle.loads(pickle.dumps((sink, ticket)))  # noqa: S301 - our own
    writer = sink.writer(ticket, piece)
    try:
        for one in chunks:
            writer.write(one)
        if complete is None:
            complete = isinstance(piece, PartSlice)
        return writer.close(complete)
    finally:
        writer.abort()


def start(sink: PostgresqlSink, positions: Positions | None = None, run: str = "r1") -> SinkSession:
    """A session that has begun at these positions, unless it has a checkpoint."""
    session = sink.open(TARGET, Run(run, "h1", 1))
    if not session.checkpoint.positions:
        session.restart(positions or {"0": 0}, "t1")
    return session


def store(
    sink: PostgresqlSink, *batches: Sequence[Mapping[str, Any]], session: SinkSession | None = None
) -> SinkSession:
    """One micro-batch of partition 0, one chunk per batch; returns the session for the next."""
    session = session or start(sink)
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
