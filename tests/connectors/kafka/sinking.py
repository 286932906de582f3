"""A branch that writes into one topic of a real broker: driven by hand, and read back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

import devservers
from dataflow_assets.connectors.kafka import KafkaSink
from dataflow_assets.connectors.kafka.sink.checkpoint_records import side_topic
from dataflow_assets.contracts import (
    DELETE,
    INSERT,
    MESSAGES,
    OFFSET,
    OP,
    Chunk,
    OffsetSlice,
    Receipt,
    Rejection,
    Rejects,
    Run,
    SinkSession,
    Slice,
    Span,
    Target,
    Writer,
)
from tests.conftest import Topics
from tests.connectors.kafka.topics import committed

SOURCE = "source-id"
Header = tuple[str, bytes | None]


@dataclass
class Sent:
    """One row on its way into the sink."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[Header] = ()
    deleted: bool = False


class Into:
    """One branch that writes into one topic."""

    def __init__(self, kafka: devservers.Kafka, topic: str, **options: Any) -> None:
        self.kafka, self.topic = kafka, topic
        given = {"brokers": (kafka.bootstrap,), "topic": topic, **options}
        self.sink = KafkaSink.model_validate(given)
        self.target = Target("default/flow", f"kafka:{topic}", "h", "src", SOURCE, Rejects("table"))
        self.sessions: list[SinkSession] = []

    def open(self) -> SinkSession:
        self.sessions.append(self.sink.open(self.target, Run()))
        return self.sessions[-1]

    def begun(self, *pieces: Slice) -> tuple[SinkSession, Span]:
        """A session that has begun a span from the checkpoint, or from its beginning."""
        session = self.open()
        if not session.checkpoint.positions:
            session.restart({p.partition: p.after for p in pieces if p.after is not None}, SOURCE)
        return session, session.begin(Span(pieces))

    def write(
        self, session: SinkSession, piece: Slice, rows: Sequence[Sent], at: int = 0
    ) -> Writer:
        writer = self.sink.writer(session.ticket(), piece)
        writer.write(chunk(rows, at))
        return writer

    def put(self, rows: Sequence[Sent]) -> Receipt:
        """All rows by one commit, read from offset 0 on."""
        piece = OffsetSlice("0", 0, len(rows))
        session, span = self.begun(piece)
        receipt = self.write(session, piece, rows).close(complete=False)
        session.finish(span, [receipt], None)  # type: ignore[arg-type]  # no parts to fold
        return receipt

    def records(self, topic: str | None = None) -> list[Message]:
        return committed(self.kafka.bootstrap, topic or self.topic)

    def values(self) -> list[bytes | None]:
        return sorted((m.value() for m in self.records()), key=lambda value: value or b"")

    def reasons(self) -> list[str]:
        found = self.records(f"{self.topic}.rejected")
        return [json.loads(m.value() or b"")["error"]["message"] for m in found]


def chunk(rows: Sequence[Sent], at: int = 0, rejected: Sequence[Rejection] = ()) -> Chunk:
    headers = [[{"key": k, "value": v} for k, v in row.headers] for row in rows]
    columns = {
        "value": pa.array([row.value for row in rows], pa.binary()),
        "key": pa.array([row.key for row in rows], pa.binary()),
        "headers": pa.array(headers, MESSAGES.field("headers").type),
        OFFSET: pa.array(range(at, at + len(rows)), pa.int64()),
    }
    if any(row.deleted for row in rows):
        columns[OP] = pa.array([DELETE if row.deleted else INSERT for row in rows], pa.int8())
    return Chunk(pa.record_batch(columns), rejected, at + len(rows), 10 * len(rows))


Make = Callable[..., Into]


@contextmanager
def branches(kafka: devservers.Kafka, topic: Topics) -> Iterator[Make]:
    """What makes a branch with its topic; closes the sessions, deletes the side topics."""
    made: list[Into] = []

    def make(partitions: int = 1, config: dict[str, str] | None = None, **options: Any) -> Into:
        made.append(Into(kafka, topic(partitions, config), **options))
        return made[-1]

    yield make
    for session in (session for one in made for session in one.sessions):
        session.close()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    ours = [name for one in made for name in (side_topic(one.target), f"{one.topic}.rejected")]
    for deleted in admin.delete_topics(ours).values() if ours else ():
        deleted.exception(30)
