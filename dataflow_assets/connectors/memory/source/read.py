"""What a task reads: the messages of an offset slice, the rows of a part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from dataflow_assets.connectors.memory.options import MemorySourceOptions
from dataflow_assets.connectors.memory.store import Store
from dataflow_assets.contracts import Span
from dataflow_assets.sdk.place import with_place

MESSAGES = pa.schema([("_at", pa.int64()), ("body", pa.binary()), ("key", pa.binary())])
DDL = "_at bigint, body binary, key binary"
_BETWEEN = (
    'select "offset", body, key from messages where topic = ? and partition = ? '
    'and "offset" >= ? and "offset" < ? order by "offset"'
)


def read_messages(
    source: MemorySourceOptions, partition: str, after: int, upto: int
) -> pa.RecordBatch:
    """The messages `after <= offset < upto` of one partition, `_at` their offset."""
    rows = Store(source.store).query(_BETWEEN, source.topic, int(partition), after, upto)
    messages = [dict(zip(MESSAGES.names, row, strict=True)) for row in rows]
    return pa.RecordBatch.from_pylist(messages, MESSAGES)


def read_rows(source: MemorySourceOptions, low: int, high: int) -> pa.RecordBatch:
    """The rows `low <= id < high`, typed."""
    rows = Store(source.store).query(_BETWEEN, source.topic, 0, low, high)
    ids = pa.array([id_ for id_, _, _ in rows], pa.int64())
    names = pa.array([(name or b"").decode() for _, name, _ in rows], pa.string())
    return with_place(pa.RecordBatch.from_arrays([ids, names], names=["id", "name"]), {"id": ids})


@dataclass(frozen=True)
class ReadSlices:
    """For Spark's `mapInArrow`: the messages of the slices named by `id`."""

    source: MemorySourceOptions
    span: Span

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for index in (index for batch in batches for index in batch.column("id").to_pylist()):
            piece = self.span.slices[index]
            batch = read_messages(
                self.source, piece.partition, int(piece.after or 0), int(piece.upto)
            )
            at = [offset * len(self.span.slices) + index for offset in batch["_at"].to_pylist()]
            yield batch.set_column(0, MESSAGES.field("_at"), pa.array(at, pa.int64()))
