"""Batches of messages from Spark: large records filled in, divided where a batch is large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from dataflow_assets.contracts import Slice, Source
from dataflow_assets.contracts.reading import ReadsLargeRecords
from dataflow_assets.micro_batch.batch_bytes import divide, join

DECODED_BYTES = 8 * 1024 * 1024  # of a batch; decoded, it takes several times as much


def with_large_values(
    batches: Iterable[pa.RecordBatch], source: Source, slices: Sequence[Slice]
) -> Iterator[pa.RecordBatch]:
    """The records of a Spark partition in order, each with its values; no batch is empty.

    Called in each task that reads messages.

    Raises:
        TransientError: a large record cannot be read, or was removed.
    """
    for batch in batches:
        large = np.flatnonzero(batch.column("_at").to_numpy() < 0)
        parts: Iterable[pa.RecordBatch] = [batch]
        if len(large):
            parts = join(_fill(batch, large.tolist(), source, slices), DECODED_BYTES)
        for part in parts:
            yield from divide(part, DECODED_BYTES)


def _fill(
    batch: pa.RecordBatch, large: Sequence[int], source: Source, slices: Sequence[Slice]
) -> Iterator[pa.RecordBatch]:
    positions = [-1 - batch.column("_at")[row].as_py() for row in large]
    offsets = [position // len(slices) for position in positions]
    assert isinstance(source, ReadsLargeRecords)  # noqa: S101 - its frame has left them out
    records = source.large_records(slices[positions[0] % len(slices)].partition, offsets)
    begin = 0
    for row, position, record in zip(large, positions, records, strict=True):
        yield batch.slice(begin, row - begin)
        values = [record.column(name) for name in batch.schema.names[1:]]
        columns = [pa.array([position], pa.int64()), *values]
        yield pa.RecordBatch.from_arrays(columns, batch.schema.names).cast(batch.schema)
        begin = row + 1
    yield batch.slice(begin)
