"""`IcebergWriter`: stages the files of one slice inside a task; the session publishes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.iceberg.addresses import slug
from dataflow_assets.connectors.iceberg.errors import translate_errors
from dataflow_assets.connectors.iceberg.merge.stage import IcebergStage
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.rejected.table import RejectWriter
from dataflow_assets.connectors.iceberg.table.checkpoint import short_hash
from dataflow_assets.connectors.iceberg.table.data_files import WriteTarget
from dataflow_assets.connectors.iceberg.table.encode import encode
from dataflow_assets.connectors.iceberg.table.far_times import datable
from dataflow_assets.connectors.iceberg.table.file_writer import FileWriter, file_writer
from dataflow_assets.contracts import (
    DELETE,
    OFFSET,
    OP,
    Chunk,
    N,
    PartSlice,
    Position,
    Receipt,
    Rejection,
    Sent,
    Slice,
    Ticket,
    Totals,
    Writer,
)
from dataflow_assets.errors import PermanentError
from dataflow_assets.failpoints import arm, reach
from dataflow_assets.sdk.rejected_records import settle
from dataflow_assets.sdk.sink.decide import without_covered


@dataclass(frozen=True)
class WriteTicket(Ticket):
    """A ticket with what a task needs to write without asking the catalog."""

    write_target: WriteTarget = field(default_factory=lambda: WriteTarget("", "", {}, {}))
    rejected: frozenset[str] = frozenset()
    """Tokens of rejected records that are in their table already."""


_MISTAKES = (pa.ArrowException, LookupError, TypeError, AttributeError)
_FAR = "its times must be in the years 1 to 9999"


class Appended:
    """Rows of one slice as data files; deletes are refused."""

    def __init__(self, files: FileWriter) -> None:
        self._files = files

    def write(self, rows: pa.RecordBatch) -> tuple[int, list[Rejection]]:
        """Takes rows with their system columns; how many, and those that do not fit."""
        rows, deletes = _without_deletes(rows)
        batch, refused = encode(rows, self._files.schema)
        self._files.write(batch)
        return batch.num_rows, [*deletes, *refused]

    def close(self) -> tuple[str, ...]:
        return self._files.close()

    def abort(self) -> None:
        self._files.abort()


class IcebergWriter(Writer):
    """Stages Parquet files below the table's location; visible once the session commits."""

    def __init__(self, sink: TableSinkOptions, ticket: WriteTicket, piece: Slice) -> None:
        arm(ticket.failpoint)
        self._sink, self._ticket, self._piece = sink, ticket, piece
        partition = slug(piece.partition)[-40:]
        name = f"{short_hash(ticket.target.id)}-{ticket.epoch}-{partition}"
        names = [*ticket.schema.names, *((time,) if (time := sink.traits.record_time) else ())]
        size = sink.target_file_size_bytes
        self._rows: IcebergStage | Appended = (
            IcebergStage(ticket.write_target, name, names, sink.key)
            if sink.upsert_mode
            else Appended(file_writer(ticket.write_target, name, names, size))
        )
        self._rejects = RejectWriter(sink, ticket.target, piece, name, ticket.rejected)
        self._rejected: list[Rejection] = []
        self._position = ticket.positions.get(piece.partition)
        self._seen: Position | None = None
        self._totals = Totals()
        self._handed_over = False

    def write(self, chunk: Chunk) -> None:
        """Buffers to row groups; what the checkpoint covers already is left out."""
        self._seen = chunk.seen
        if (left := without_covered(chunk, self._piece, self._position)) is not None:
            with _staging(self._sink):
                self._write(left)

    def _write(self, chunk: Chunk) -> None:
        rows, undated = _without_far_times(chunk.rows)
        taken, refused = self._rows.write(rows)
        here = [r.of(chunk.sent.get(r.offset, Sent(None))) for r in (*undated, *refused)]
        rejected = [*chunk.rejected, *here]
        self._rejected += rejected
        self._totals += Totals(taken, len(rejected), chunk.size)

    def close(self, complete: bool) -> Receipt:
        """Ends the files and hands them over in the receipt."""
        piece = self._piece
        if isinstance(piece, PartSlice) and not complete:
            self.abort()
            return Receipt(self._ticket.target.branch, piece.partition, None, Totals())
        with _staging(self._sink):
            settle(self._ticket.target, piece, self._rejected, self._rejects.write)
            staged = (*self._rows.close(), *self._rejects.close())
        self._handed_over = True
        reach("iceberg.staged")
        position = piece.upto if isinstance(piece, PartSlice) else self._seen
        branch = self._ticket.target.branch
        return Receipt(branch, piece.partition, position, self._totals, staged)

    def abort(self) -> None:
        """Deletes the files unless a receipt names them."""
        if not self._handed_over:
            self._rows.abort()
            self._rejects.abort()


@contextmanager
def _staging(sink: TableSinkOptions) -> Iterator[None]:
    """A mistake of our code is no answer of a store: the task names the slice with it."""
    try:
        with translate_errors(sink, "write files of"):
            yield
    except PermanentError as error:
        if isinstance(error.__cause__, _MISTAKES):
            raise error.__cause__ from None
        raise


def _without_far_times(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Rejection]]:
    near = datable(rows)
    if pc.all(near).as_py() is not False:
        return rows, []
    return rows.filter(near), rejections(rows.filter(pc.invert(near)), _FAR)


def _without_deletes(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Rejection]]:
    if OP not in rows.schema.names:
        return rows, []
    deletes = pc.equal(rows.column(OP), DELETE)
    if not pc.any(deletes).as_py():
        return rows, []
    reason = "the table is appended to only: a delete has no meaning"
    refused = rejections(rows.filter(deletes), reason)
    return rows.filter(pc.invert(deletes)), refused


def rejections(rows: pa.RecordBatch, reason: str) -> list[Rejection]:
    offsets = rows.column(OFFSET).to_pylist()
    has_n = N in rows.schema.names
    indices = rows.column(N).to_pylist() if has_n else [0] * len(offsets)
    return [
        Rejection(offset, "sink", reason, None, n=index)
        for offset, index in zip(offsets, indices, strict=True)
    ]
