"""`IcebergSliceStore`: stages the files of one slice inside a task; the session publishes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

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
from dataflow_assets.contracts import DELETE, OP, Chunk, Rejection, Sent, Slice, Ticket
from dataflow_assets.errors import PermanentError
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.rejected_records import settle
from dataflow_assets.sdk.sink.slice_commit import SliceCommit, SliceStore, rejections


@dataclass(frozen=True)
class WriteTicket(Ticket):
    """A ticket with what a task needs to write without asking the catalog."""

    write_target: WriteTarget = field(default_factory=lambda: WriteTarget("", "", {}, {}))
    rejected: frozenset[str] = frozenset()
    """Tokens of rejected records that are in their table already."""


_MISTAKES = (pa.ArrowException, LookupError, TypeError, AttributeError)
_FAR = "its times must be in the years 1 to 9999"
_DELETE = "the table is appended to only: a delete has no meaning"


class Appended:
    """Rows of one slice as data files; deletes are refused."""

    def __init__(self, files: FileWriter) -> None:
        self._files = files

    def write(self, rows: pa.RecordBatch) -> list[Rejection]:
        """Takes rows with their system columns; returns those that do not fit."""
        deletes: list[Rejection] = []
        if OP in rows.schema.names:
            rows, deletes = _refuse(rows, pc.equal(rows.column(OP), DELETE), _DELETE)
        batch, refused = encode(rows, self._files.schema)
        self._files.write(batch)
        return [*deletes, *refused]

    def close(self) -> tuple[str, ...]:
        return self._files.close()

    def abort(self) -> None:
        self._files.abort()


class IcebergSliceStore(SliceStore):
    """Parquet files below the table's location; visible once the session commits."""

    def __init__(self, sink: TableSinkOptions, ticket: WriteTicket, piece: Slice) -> None:
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
        self._handed_over = False

    @override
    def add(self, chunk: Chunk) -> Sequence[Rejection]:
        """Buffers to row groups."""
        rows, undated = _refuse(chunk.rows, pc.invert(datable(chunk.rows)), _FAR)
        refused = (*undated, *self._rows.write(rows))
        return [one.of(chunk.sent.get(one.offset, Sent(None))) for one in refused]

    @override
    def commit(self, commit: SliceCommit) -> SliceCommit:
        """Ends the files and hands them over in the receipt."""
        settle(self._ticket.target, self._piece, commit.rejected, self._rejects.write)
        staged = (*self._rows.close(), *self._rejects.close())
        self._handed_over = True
        reach("iceberg.staged")
        return replace(commit, staged=staged)

    @override
    def end(self) -> None:
        """Deletes the files unless a receipt names them."""
        if not self._handed_over:
            self._rows.abort()
            self._rejects.abort()

    @override
    @contextmanager
    def errors(self) -> Iterator[None]:
        """A mistake of our code is no answer of a store: the task names the slice with it."""
        try:
            with translate_errors(self._sink, "write files of"):
                yield
        except PermanentError as error:
            if isinstance(error.__cause__, _MISTAKES):
                raise error.__cause__ from None
            raise


def _refuse(
    rows: pa.RecordBatch, wrong: pa.Array, reason: str
) -> tuple[pa.RecordBatch, list[Rejection]]:
    """The rows without those that are wrong."""
    if not pc.any(wrong).as_py():
        return rows, []
    reasons = dict.fromkeys(pc.indices_nonzero(wrong).to_pylist(), reason)
    return rows.filter(pc.invert(wrong)), rejections(rows, reasons)
