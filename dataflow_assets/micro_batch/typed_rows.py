"""Typed rows as chunks, without records: columns go straight through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow_assets.contracts import OFFSET, Chunk, Rejection, Sent
from dataflow_assets.errors import blame
from dataflow_assets.formats.columns import conform
from dataflow_assets.formats.rows import objects
from dataflow_assets.micro_batch import row_changes
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.micro_batch.places import Places, place_column
from dataflow_assets.micro_batch.unfit_rows import join, part


def type_chunks(
    batch: pa.RecordBatch, branches: Sequence[PassBranch], seen: int, places: Places
) -> list[Chunk]:
    """Each branch's chunk of a batch whose first row has the ordinal `seen` in its part."""
    rows = with_ordinals(batch, seen)
    sent = SentRows(rows, seen, places)
    return [chunk_of(rows, branch, sent) for branch in branches]


def with_ordinals(batch: pa.RecordBatch, seen: int) -> pa.RecordBatch:
    """The rows with their ordinals in their part, of which the first one's is `seen`."""
    ordinals = np.arange(seen, seen + batch.num_rows)
    return batch.append_column(OFFSET, pa.array(ordinals, pa.int64()))


def chunk_of(rows: pa.RecordBatch, branch: PassBranch, sent: SentRows) -> Chunk:
    """Returns those rows of a batch that a branch gets, in the columns of its sink."""
    rows, others = part(rows)
    at = place_column(rows.schema)
    size = rows.nbytes - (0 if at is None else rows.column(at).nbytes)
    with blame(branch.ticket.target.branch):
        conformed = conform(
            branch.with_target_names(rows), branch.ticket.schema, branch.unknown_fields
        )
    refused = [
        (rows.column(OFFSET)[row].as_py(), reason)
        for row, reason in sorted(conformed.refused.items())
    ]
    rejected = [
        Rejection(ordinal, "encode", reason, None).of(sent[ordinal]) for ordinal, reason in refused
    ]
    chunk = Chunk(conformed.rows, rejected, sent.end, size, sent)
    return chunk if others is None else join(chunk, others, branch, sent, sent.places)


def nothing_of(branch: PassBranch, sent: SentRows) -> Chunk:
    """The chunk of a branch that gets no row of a batch, whose columns need not be its own."""
    schema = branch.ticket.schema.append(pa.field(OFFSET, pa.int64()))
    return Chunk(pa.RecordBatch.from_pylist([], schema=schema), [], sent.end, 0, sent)


@dataclass(frozen=True)
class SentRows(Mapping[int, Sent]):
    """A refused row as a JSON object."""

    rows: pa.RecordBatch
    first: int
    places: Places
    metadata: Sequence[Mapping[str, Any]] | None = None
    """Of each row; None: nobody has read it."""

    @property
    def end(self) -> int:
        return self.first + len(self)

    def __getitem__(self, ordinal: int) -> Sent:  # KeyError for a foreign ordinal
        row = ordinal - self.first
        if not 0 <= row < self.rows.num_rows:
            raise KeyError(ordinal)
        body = objects(self.rows.slice(row, 1))[0]
        metadata = None if self.metadata is None else self.metadata[row]
        place = self.places.of(self.rows, row, ordinal, body)
        return Sent(body, metadata, place=place, change=row_changes.dump(self.rows, row))

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.end))

    def __len__(self) -> int:
        return int(self.rows.num_rows)
