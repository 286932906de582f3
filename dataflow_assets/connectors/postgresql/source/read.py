"""The rows of a query as Arrow batches, by a binary COPY.

A batch is made as soon as enough rows are there: memory does not grow with the part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.source.decode_copy import (
    HEADER,
    TRAILER,
    PostgresqlDecoder,
)
from dataflow_assets.sdk.sql_table import Selection

BATCH_ROWS = 50_000
BATCH_BYTES = 8 * 1024 * 1024


def read(link: TextLink, query: str, columns: Sequence[Selection]) -> Iterator[pa.RecordBatch]:
    """Returns the answer to a query of these columns, however long it takes the server."""
    link.execute("BEGIN READ ONLY")
    link.execute("SELECT set_config('statement_timeout', '0', true)")
    decoder = PostgresqlDecoder(
        [each.field for each in columns], [each.column.type for each in columns]
    )
    return copy_batches(link, decoder, f"COPY ({query}) TO STDOUT (FORMAT binary)")


def copy_batches(
    link: TextLink, decoder: PostgresqlDecoder, query: str
) -> Iterator[pa.RecordBatch]:
    """Returns what a binary COPY sends, at least one batch; ends only when the server says so."""
    skipped, has_batch = HEADER, False
    data, sizes = bytearray(), list[int]()
    for message in link.copy_out(query):
        if len(message) == len(TRAILER) + (0 if has_batch or sizes else skipped):
            break  # alone in its message, where there are no rows behind the header
        data += message
        sizes.append(len(message))
        if len(sizes) >= BATCH_ROWS or len(data) >= BATCH_BYTES:
            yield _decode(decoder, data, sizes, skipped)
            skipped, has_batch, data, sizes = 0, True, bytearray(), []
    if sizes or not has_batch:
        yield _decode(decoder, data, sizes, skipped)


def _decode(
    decoder: PostgresqlDecoder, data: bytearray, sizes: list[int], skipped: int
) -> pa.RecordBatch:
    starts = np.zeros(len(sizes), np.int64)
    np.cumsum(sizes[:-1], out=starts[1:])
    if skipped and len(starts):
        starts[0] = skipped
    return decoder.decode(bytes(data), starts)
