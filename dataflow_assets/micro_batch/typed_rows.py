"""Typed rows as chunks, without steps: columns go straight through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataflow_assets.contracts import OFFSET, Chunk, Rejection, Sent
from dataflow_assets.formats.columns import conform
from dataflow_assets.formats.rows import objects
from dataflow_assets.micro_batch.lanes import Lane


def typed(batch: pa.RecordBatch, lanes: Sequence[Lane], seen: int) -> list[Chunk]:
    """Each lane's chunk of a batch whose first row has the ordinal `seen` in its part."""
    ordinals = pa.array(np.arange(seen, seen + batch.num_rows), pa.int64())
    rows = batch.append_column(OFFSET, ordinals)
    return [_chunk(rows, lane, seen) for lane in lanes]


def _chunk(rows: pa.RecordBatch, lane: Lane, seen: int) -> Chunk:
    sent = _Sent(rows, seen)
    conformed = conform(rows, lane.ticket.schema, lane.sink.unknown_fields)
    rejected = [
        Rejection(seen + row, "encode", reason, sent[seen + row].body)
        for row, reason in sorted(conformed.refused.items())
    ]
    return Chunk(conformed.rows, rejected, seen + rows.num_rows, rows.nbytes, sent)


@dataclass(frozen=True)
class _Sent(Mapping[int, Sent]):
    """A refused row as a JSON object."""

    rows: pa.RecordBatch
    first: int

    def __getitem__(self, ordinal: int) -> Sent:  # KeyError for a foreign ordinal
        if not 0 <= ordinal - self.first < self.rows.num_rows:
            raise KeyError(ordinal)
        return Sent(objects(self.rows.slice(ordinal - self.first, 1))[0])

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.first + self.rows.num_rows))

    def __len__(self) -> int:
        return len(self.rows)
