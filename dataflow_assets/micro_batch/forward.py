"""Messages for sinks that take messages: body, key and headers byte for byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import DELETE, INSERT, MESSAGES, OFFSET, OP, Chunk, N, Rejection
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.micro_batch.originals import Messages, unstored
from dataflow_assets.records.record import NotJson, Record, text

_HEADERS = MESSAGES.field("headers").type


def forwarded(batch: pa.RecordBatch, sent: Messages, tombstones: str) -> Chunk:
    """The messages of a batch as they are; `tombstones` skip: without those of a null body."""
    offsets = sent.offsets
    size = pc.sum(pc.binary_length(batch.column("body"))).as_py() or 0
    rows = _with_operations(_rows(batch, batch.column("body"), offsets), batch)
    if tombstones == "skip":
        rows = rows.filter(rows.column("value").is_valid())
    return Chunk(rows, [], int(offsets[-1].as_py()) + 1, size, sent)


def _rows(batch: pa.RecordBatch, values: pa.Array, offsets: pa.Array) -> pa.RecordBatch:
    columns = [values, column(batch, "key"), column(batch, "headers"), offsets]
    schema = MESSAGES.append(pa.field(OFFSET, pa.int64()))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_operations(rows: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Where a table's rows are the messages: which of them are deleted."""
    if OP not in batch.schema.names:
        return rows
    return rows.append_column(pa.field(OP, pa.int8()), batch.column(OP))


def column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Keys or headers; null where the source has none."""
    wanted = MESSAGES.field(name).type
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, wanted)
    found = batch.column(name)
    return found if found.type == wanted else found.cast(wanted)


@dataclass
class Forwarded:
    """What one branch gets of one batch of records; key and headers are those of their message."""

    branch: PassBranch
    tombstones: str
    at: list[int] = field(default_factory=list)
    n: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    operations: list[int] = field(default_factory=list)
    failed: list[tuple[int, int, RejectedRecord]] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)

    def take(self, at: int, n: int, record: Record) -> None:
        """Takes a record: the n-th that became of row `at`."""
        try:
            value = text(record.body)
        except RejectedRecord as error:
            self.failed.append((at, n, error))
            return
        null = isinstance(record.body, NotJson) and record.body.raw is None
        if null and self.tombstones == "skip":
            return
        deleted = record.metadata.get("operation") == "delete"
        self.at.append(at)
        self.n.append(n)
        self.values.append(value)
        self.operations.append(DELETE if deleted else INSERT)

    def chunk(self, offsets: Any, sent: Messages) -> Chunk:
        """The rows in the schema MESSAGES plus system columns."""
        at = np.array(self.at, np.int64)
        places = pa.array(offsets[at], pa.int64())
        values = pa.array(self.values, pa.binary())
        rows = _rows(sent.batch.take(pa.array(at)), values, places)
        if any(self.n):
            rows = rows.append_column(N, pa.array(self.n, pa.int32()))
        if any(self.operations):
            rows = rows.append_column(OP, pa.array(self.operations, pa.int8()))
        refused = [unstored(int(offsets[at]), n, error, sent) for at, n, error in self.failed]
        rejected = sorted([*self.rejected, *refused], key=lambda one: (one.offset, one.n))
        size = sum(len(value) for value in self.values if value)
        return Chunk(rows, rejected, int(offsets[-1]) + 1, size, sent)
