"""Batches of messages, as Spark brings them: completed, and divided where they are large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from dataflow_assets.contracts import Slice, Source

BYTES = 8 * 1024 * 1024  # of a batch that is decoded at once; what it becomes is several times that


def ready(
    batches: Iterable[pa.RecordBatch], source: Source, slices: Sequence[Slice]
) -> Iterator[pa.RecordBatch]:
    """The filled ones, with the large records that `SourceSession.frame` has left out."""
    for batch in batches:
        large = np.flatnonzero(batch.column("_at").to_numpy() < 0)
        parts = _completed(batch, large.tolist(), source, slices) if len(large) else [batch]
        for part in parts:
            yield from _divided(part)


def _completed(
    batch: pa.RecordBatch, large: Sequence[int], source: Source, slices: Sequence[Slice]
) -> Iterator[pa.RecordBatch]:
    at = [-1 - batch.column("_at")[row].as_py() for row in large]
    offsets = [place // len(slices) for place in at]
    records = source.large_records(slices[at[0] % len(slices)].partition, offsets)
    begin = 0
    for row, place, record in zip(large, at, records, strict=True):
        yield batch.slice(begin, row - begin)
        values = [record.column(name) for name in batch.schema.names[1:]]
        columns = [pa.array([place], pa.int64()), *values]
        yield pa.RecordBatch.from_arrays(columns, batch.schema.names).cast(batch.schema)
        begin = row + 1
    yield batch.slice(begin)


def _divided(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    few = max(1, batch.num_rows * BYTES // max(batch.nbytes, 1))
    for begin in range(0, batch.num_rows, few):
        yield batch.slice(begin, few)
