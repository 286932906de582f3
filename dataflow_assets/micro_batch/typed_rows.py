"""Typed rows as chunks, without steps: columns go straight through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataflow_assets.contracts import OFFSET, Chunk, Rejection, Sent
from dataflow_assets.errors import blamed
from dataflow_assets.formats.columns import conform
from dataflow_assets.formats.rows import objects
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.micro_batch.places import Places, place_column


def typed(
    batch: pa.RecordBatch, branches: Sequence[PassBranch], seen: int, places: Places
) -> list[Chunk]:
    """Each branch's chunk of a batch whose first row has the ordinal `seen` in its part."""
    ordinals = pa.array(np.arange(seen, seen + batch.num_rows), pa.int64())
    rows = batch.append_column(OFFSET, ordinals)
    at = place_column(rows.schema)
    size = rows.nbytes - (0 if at is None else rows.column(at).nbytes)
    sent = _Sent(rows, seen, places)
    return [_chunk(rows, branch, size, sent) for branch in branches]


def _chunk(rows: pa.RecordBatch, branch: PassBranch, size: int, sent: _Sent) -> Chunk:
    with blamed(branch.ticket.target.branch):
        conformed = conform(rows, branch.ticket.schema, branch.unknown_fields)
    rejected = [
        Rejection(sent.first + row, "encode", reason, None).of(sent[sent.first + row])
        for row, reason in sorted(conformed.refused.items())
    ]
    return Chunk(conformed.rows, rejected, sent.first + rows.num_rows, size, sent)


@dataclass(frozen=True)
class _Sent(Mapping[int, Sent]):
    """A refused row as a JSON object."""

    rows: pa.RecordBatch
    first: int
    places: Places

    def __getitem__(self, ordinal: int) -> Sent:  # KeyError for a foreign ordinal
        row = ordinal - self.first
        if not 0 <= row < self.rows.num_rows:
            raise KeyError(ordinal)
        body = objects(self.rows.slice(row, 1))[0]
        return Sent(body, place=self.places.of(self.rows, row, ordinal, body))

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.first + self.rows.num_rows))

    def __len__(self) -> int:
        return len(self.rows)
