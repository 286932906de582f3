"""What a task reads: rows of a part of the spool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from dataflow_assets.connectors.kafka_connect.options import KafkaConnectSourceOptions
from dataflow_assets.connectors.kafka_connect.source.position import Piece
from dataflow_assets.connectors.kafka_connect.spool import Part, Spool
from dataflow_assets.contracts import METADATA, PartSlice, Slice
from dataflow_assets.errors import PermanentError
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.place import constant, named

_ROWS = 10_000  # of one batch
_NULL = msgspec.Raw(b"null")


def read(
    source: KafkaConnectSourceOptions, piece: Slice, metadata: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    """The records of a piece, each an object with `topic`, `id` and `record`."""
    assert isinstance(piece, PartSlice)  # noqa: S101 - this source plans nothing else
    one = Piece.parse(piece.part)
    part = Part(one.number, one.task, one.rows, one.bytes)
    try:
        file = Spool(source.spool).read(part)
    except FileNotFoundError:
        raise PermanentError(missing(source, one.number)) from None
    with file:
        at = 0
        for batch in file.iter_batches(_ROWS):
            begin, end = max(one.begin - at, 0), min(one.end - at, batch.num_rows)
            if begin < end:
                reach("connect.read")
                rows = batch.slice(begin, end - begin)
                yield _batch(_bodies(source, rows), rows, one, at + begin, metadata)
            at += batch.num_rows


def missing(source: KafkaConnectSourceOptions, number: int) -> str:
    """A part that a flow still needs is not there."""
    return (
        f"part {number} of the spool {source.spool} is gone, and {source.title} may have been told "
        "that its records were delivered: put the folder back, or start from earliest with "
        "table: truncate; every Spark worker must see the folder under this name"
    )


def _bodies(source: KafkaConnectSourceOptions, rows: pa.RecordBatch) -> pa.Array:
    if not source.envelope:
        return rows.column("record").cast(pa.binary())
    columns = [rows.column(name).to_pylist() for name in ("topic", "id", "record")]
    return pa.array([_body(*row) for row in zip(*columns, strict=True)], pa.binary())


def _batch(
    bodies: pa.Array, rows: pa.RecordBatch, part: Piece, begin: int, metadata: frozenset[str]
) -> pa.RecordBatch:
    known: dict[str, tuple[pa.Field, Any]] = {
        "key": (pa.field("key", pa.binary()), rows.column("id").cast(pa.binary())),
        "topic": (
            pa.field("#topic", pa.string(), metadata={METADATA: b"topic"}),
            rows.column("topic"),
        ),
        "task": (
            pa.field("#task", pa.int64(), metadata={METADATA: b"task"}),
            pa.array([part.task] * rows.num_rows, pa.int64()),
        ),
    }
    wanted = [known[name] for name in sorted(metadata & known.keys())]
    schema = pa.schema([pa.field("body", pa.binary()), *(field for field, _ in wanted)])
    arrays = [bodies, *(array for _, array in wanted)]
    numbers = pa.array([str(begin + n) for n in range(rows.num_rows)])
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return named(batch, {"part": constant(str(part.number), rows.num_rows), "row": numbers})


def _body(topic: str | None, key: str | None, value: str | None) -> bytes:
    return msgspec.json.encode(
        {
            "topic": topic,
            "id": _NULL if key is None else msgspec.Raw(key.encode()),
            "record": _NULL if value is None else msgspec.Raw(value.encode()),
        }
    )
