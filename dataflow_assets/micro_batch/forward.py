"""Messages for sinks that take messages: body, key and headers byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.contracts import (
    DELETE,
    INSERT,
    MESSAGES,
    OFFSET,
    OP,
    Chunk,
    N,
    Rejection,
    Sink,
)
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.message_format import MessageFormat, Texts
from dataflow_assets.micro_batch import unknown_values
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.micro_batch.originals import OriginalMessages, sink_rejection
from dataflow_assets.records.record import NotJson, Record, text

_HEADERS = MESSAGES.field("headers").type
Keys = Callable[[pa.Array], Texts]


def forward(batch: pa.RecordBatch, sent: OriginalMessages, tombstones: str) -> Chunk:
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
    if OP not in batch.schema.names:
        return rows
    return rows.append_column(pa.field(OP, pa.int8()), batch.column(OP))


def with_read_keys(
    rows: pa.RecordBatch, read: Keys | None
) -> tuple[pa.RecordBatch, Mapping[int, str]]:
    """The rows with the keys of null messages as text, and by offset why one cannot be decoded.

    A sink that makes keys of its own finds in them which record is gone. What cannot be decoded is
    left out. All other keys stay as they were sent.

    Args:
        rows: in the schema MESSAGES plus system columns.
        read: decodes keys; None where keys are text already, or nobody reads them.
    """
    nulls = rows.column("value").is_null()
    if read is None or not pc.any(nulls).as_py():
        return rows, {}
    keys_read = read(rows.column("key").filter(nulls))
    offsets = rows.column(OFFSET).filter(nulls)
    refused = {offsets[row].as_py(): why for row, why in keys_read.refused.items()}
    keys = pc.replace_with_mask(rows.column("key"), nulls, keys_read.texts)
    at = rows.schema.get_field_index("key")
    keyed = rows.set_column(at, rows.schema.field(at), keys)
    gone = pc.and_(nulls, pc.is_in(rows.column(OFFSET), pa.array([*refused], pa.int64())))
    return keyed.filter(pc.invert(gone)), refused


def column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Keys or headers; null where the source has none."""
    kind = MESSAGES.field(name).type
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, kind)
    array = batch.column(name)
    return array if array.type == kind else array.cast(kind)


def keys_of(form: MessageFormat | None, sink: Sink) -> Keys | None:
    """The decoder of null messages' keys for a sink; None where it does not read them."""
    return form.keys if form is not None and sink.traits.reads_null_keys else None


@dataclass
class Forwarded:
    """One branch's share of one batch of records; key and headers are those of their message."""

    branch: PassBranch
    tombstones: str
    keys: Keys | None = None
    """Decodes keys of null messages, where the sink reads them."""
    at: list[int] = field(default_factory=list)
    n: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    operations: list[int] = field(default_factory=list)
    unknown: dict[int, str] = field(default_factory=dict)
    """Why the source of a row's record does not know all of it."""
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
        if (reason := unknown_values.unavailable(record)) is not None:
            self.unknown[len(self.at)] = reason
        self.at.append(at)
        self.n.append(n)
        self.values.append(value)
        self.operations.append(DELETE if deleted else INSERT)

    def chunk(self, offsets: Any, sent: OriginalMessages) -> Chunk:
        """The rows in the schema MESSAGES plus system columns."""
        at = np.array(self.at, np.int64)
        places = pa.array(offsets[at], pa.int64())
        values = pa.array(self.values, pa.binary())
        rows = _rows(sent.batch.take(pa.array(at)), values, places)
        if any(self.n):
            rows = rows.append_column(N, pa.array(self.n, pa.int32()))
        if any(self.operations):
            rows = rows.append_column(OP, pa.array(self.operations, pa.int8()))
        if self.unknown:
            rows = unknown_values.with_reasons(rows, self.unknown)
        rows, unread = with_read_keys(rows, self.keys)
        nameless = [
            sink_rejection(offset, 0, RejectedRecord("decode", why), sent)
            for offset, why in unread.items()
        ]
        refused = [sink_rejection(int(offsets[at]), n, error, sent) for at, n, error in self.failed]
        rejected = sorted(
            [*self.rejected, *refused, *nameless], key=lambda one: (one.offset, one.n)
        )
        size = sum(len(value) for value in self.values if value)
        return Chunk(rows, rejected, int(offsets[-1]) + 1, size, sent)
