"""The time that each message carries, as a column of its rows."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import OFFSET, Chunk

TIMESTAMP = "timestamp"
"""The column of a batch of messages, of all sources of messages."""


def timed(chunk: Chunk, batch: pa.RecordBatch, offsets: pa.Array, name: str) -> Chunk:
    """The chunk with one more column: the time of the message that each row comes from.

    Called inside tasks for each batch of messages, for a sink with `record_time`.

    Args:
        chunk: what the branch gets of the batch, fewer rows than messages where some are rejected.
        batch: the messages.
        offsets: of the messages.
        name: of the column; null where a rejected record is put back, whose time was not kept.
    """
    kind = pa.timestamp("us", "UTC")
    if TIMESTAMP in batch.schema.names:
        times = batch.column(TIMESTAMP).cast(kind)
    else:
        times = pa.nulls(batch.num_rows, kind)
    found = times.take(pc.index_in(chunk.rows.column(OFFSET), offsets))
    return replace(chunk, rows=chunk.rows.append_column(name, found))
