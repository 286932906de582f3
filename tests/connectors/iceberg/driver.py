"""What the tests of the Iceberg sink share: a sink on the test catalog, and its two verbs."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, cast

import pyarrow as pa
from pyiceberg.catalog import Catalog

from dataflow_assets.connectors.iceberg import IcebergSink
from dataflow_assets.contracts import (
    OFFSET,
    Chunk,
    OffsetSlice,
    Position,
    Receipt,
    Rejection,
    Run,
    Sink,
    SinkSession,
    Slice,
    SourceSession,
    Span,
    Target,
)
from devservers import SeaweedFS

TARGET = Target("default/orders", "iceberg:orders", "hash-1", "orders")
SAMPLE = pa.schema([("id", pa.int64()), ("name", pa.string())])
MakeSink = Callable[..., IcebergSink]


class FixedSource:
    """A source that keeps every position."""

    identity = "topic-1"

    def fold(self, positions: dict[str, Position]) -> dict[str, Position]:
        return positions


SOURCE = cast("SourceSession", FixedSource())


def connection(seaweedfs: SeaweedFS, namespace: str, table: str) -> dict[str, Any]:
    """The keys that source and sink share."""
    return {
        "catalogURI": seaweedfs.uri,
        "warehouse": seaweedfs.warehouse,
        "namespace": namespace,
        "table": table,
        "oauth2ClientID": seaweedfs.access_key,
        "oauth2ClientSecret": seaweedfs.secret_key,
        "s3Endpoint": seaweedfs.s3_endpoint,
        "s3Region": seaweedfs.region,
        "accessKey": seaweedfs.access_key,
        "secretAccessKey": seaweedfs.secret_key,
    }


def make_sink(seaweedfs: SeaweedFS, namespace: str, **changes: Any) -> IcebergSink:
    config = connection(seaweedfs, namespace, "orders") | {"autoCreateTable": True}
    return IcebergSink.model_validate(config | changes)


def opened(sink: Sink, target: Target = TARGET, sample: pa.Schema = SAMPLE) -> SinkSession:
    session = sink.open(target, Run())
    if not session.checkpoint.positions:
        session.restart({"p0": 0, "p1": 0}, "topic-1")
    if session.table.schema() is None:
        session.table.create(sample)
    return session


def rows(first: int, count: int) -> pa.RecordBatch:
    ids = pa.array(range(first, first + count), pa.int64())
    names = pa.array([f"n{i}" for i in range(first, first + count)])
    return pa.RecordBatch.from_arrays([ids, names, ids], ["id", "name", OFFSET])


def write(
    sink: Sink,
    session: SinkSession,
    piece: Slice,
    batch: pa.RecordBatch,
    rejected: Sequence[Rejection] = (),
    **more: Any,
) -> Receipt:
    sink, ticket = pickle.loads(pickle.dumps((sink, session.ticket())))  # noqa: S301 - our own
    writer = sink.writer(ticket, piece)
    seen = piece.upto if isinstance(piece.upto, int) else batch.num_rows
    writer.write(Chunk(batch, rejected, seen, 10 * batch.num_rows, **more))
    return writer.close(complete=True)


def span_of(first: int, count: int) -> Span:
    return Span((OffsetSlice("p0", first, first + count), OffsetSlice("p1", first, first + count)))


def pump(sink: Sink, session: SinkSession, first: int, count: int) -> None:
    """One micro-batch of two partitions; ids of the second are shifted by a million."""
    span = session.begin(span_of(first, count))
    session.finish(span, stage(sink, session, span), SOURCE)


def stage(sink: Sink, session: SinkSession, span: Span) -> list[Receipt]:
    receipts = []
    for index, piece in enumerate(span.slices):
        assert isinstance(piece, OffsetSlice)
        batch = rows(piece.after, piece.upto - piece.after)
        ids = pa.array([i + 1_000_000 * index for i in batch.column("id").to_pylist()], pa.int64())
        batch = batch.set_column(0, "id", ids)
        receipts.append(write(sink, session, piece, batch))
    return receipts


def table_rows(catalog: Catalog, namespace: str, table: str = "orders") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        catalog.load_table((namespace, table)).scan().to_arrow().to_pylist()
    )
    return found


def ids(catalog: Catalog, namespace: str) -> list[int]:
    return sorted(row["id"] for row in table_rows(catalog, namespace))


def expected(count: int) -> list[int]:
    return [*range(count), *range(1_000_000, 1_000_000 + count)]


def snapshots(catalog: Catalog, namespace: str) -> int:
    return len(catalog.load_table((namespace, "orders")).snapshots())
