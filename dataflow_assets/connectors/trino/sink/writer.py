"""Inside a task: the rows of one slice, on their way to the one statement of the span."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.encode import lines
from dataflow_assets.connectors.trino.errors import TrinoFailure
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.rejected.error_sink import store
from dataflow_assets.connectors.trino.sink.refused_values import TrinoTrial
from dataflow_assets.connectors.trino.sink.suspects import TrinoBound, bound_chunk
from dataflow_assets.connectors.trino.table.stage import TrinoChunks, length_of
from dataflow_assets.connectors.trino.table.table import Column, TrinoPlace
from dataflow_assets.contracts import ABSENT, OFFSET, OP, Chunk, Rejection, Slice, Ticket
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.key_folding import deletes
from dataflow_assets.sdk.rejected_records import settle
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sink.decide import without_covered
from dataflow_assets.sdk.sink.slice_commit import SliceCommit, SliceStore, SliceWriter, rejections

_APPENDED = "the table is appended to only: a delete has no meaning"
_NO_DELETES = (
    "a delete, and the sink has no deleteMode: set deleteMode: hard to remove the row, or "
    "softDeleteColumn to mark it"
)


@dataclass(frozen=True)
class TrinoTicket(Ticket):
    """What a task needs: the columns, and where many rows wait."""

    columns: tuple[Column, ...] = ()
    stage: TrinoPlace | None = None
    bounds: Mapping[str, TrinoBound] = field(default_factory=dict)
    """By partition, where a record is searched for that the target refuses."""


class TrinoSliceStore(SliceStore):
    """Rows on their way: the receipt has them, or names the attempt under which they wait."""

    def __init__(self, sink: TrinoSinkOptions, ticket: TrinoTicket, piece: Slice) -> None:
        assert ticket.stage is not None  # noqa: S101 - the session gives one
        self._sink, self._ticket, self._piece = sink, ticket, piece
        self._names = [column.name for column in ticket.columns]
        with self.errors():
            self._client = TrinoClient(sink, "dataflow-write")
        attempt, most = uuid.uuid4().hex, sink.max_statement_length
        self._chunks = TrinoChunks(self._client, ticket.stage, attempt, most)
        self._trial = TrinoTrial(self._client, ticket.columns, self._chunks.longest)
        self._lacks = False
        self._records, self._first = 0, 0
        """Of the rows that are staged."""

    @override
    def add(self, chunk: Chunk) -> Sequence[Rejection]:
        rows, refused = self._accept(chunk)
        texts = [line.decode() for line in lines(rows, self._names, *_system(rows))]
        lengths = [length_of(text) for text in texts]
        bad = _too_long(lengths, self._chunks.longest)
        fitting = [row for row in range(len(texts)) if row not in bad]
        tried = self._trial.refused_rows([texts[row] for row in fitting])
        bad |= {fitting[at]: reason for at, reason in tried.items()}
        good = [row for row in range(len(texts)) if row not in bad]
        for row in good:
            self._chunks.add(texts[row], lengths[row])
        self._count(rows.column(OFFSET).to_numpy()[good])
        self._lacks = self._lacks or ABSENT in rows.schema.names or OP in rows.schema.names
        reach("trino.write")
        return [*refused, *rejections(rows, bad, chunk.sent)]

    @override
    def commit(self, commit: SliceCommit) -> SliceCommit:
        settle(self._ticket.target, self._piece, commit.rejected, self._beside)
        staged = self._chunks.handed_over(lacks=self._lacks)
        staged = msgspec.structs.replace(staged, records=self._records, first=self._first)
        reach("trino.staged")
        return replace(commit, staged=(msgspec.json.encode(staged).decode(),))

    @override
    def end(self) -> None:
        """Closes the client; what is in the stage counts for nobody, and goes with it."""
        with suppress(TrinoFailure):
            self._client.close()

    @override
    def errors(self) -> AbstractContextManager[None]:
        return translate_errors(f"writing to {self._sink.address()}")

    def _count(self, offsets: npt.NDArray[np.int64]) -> None:
        """The rows of one record are in one chunk."""
        found = np.unique(offsets)
        if len(found) and not self._records:
            self._first = int(found[0])
        self._records += len(found)

    def _accept(self, chunk: Chunk) -> tuple[pa.RecordBatch, list[Rejection]]:
        """Without the deletes that mean nothing here."""
        rows, deleted = chunk.rows, deletes(chunk.rows)
        if not deleted.any() or (self._sink.upsert_mode and self._sink.traits.takes_deletes):
            return rows, []
        reason = _NO_DELETES if self._sink.upsert_mode else _APPENDED
        reasons = dict.fromkeys(np.flatnonzero(deleted).tolist(), reason)
        return rows.filter(pa.array(~deleted)), rejections(rows, reasons, chunk.sent)

    def _beside(self, found: Sequence[Rejection]) -> None:
        store(self._client, self._sink, self._ticket.target, self._piece, found)


class TrinoWriter(SliceWriter):
    """Writes no further than the search for a record goes that the target refuses."""

    def __init__(self, ticket: TrinoTicket, piece: Slice, store: TrinoSliceStore) -> None:
        super().__init__(ticket, piece, store)
        self._bound = ticket.bounds.get(piece.partition)
        self._taken, self._is_over = 0, False

    @override
    def write(self, chunk: Chunk) -> None:
        if self._is_over:
            return
        left = without_covered(chunk, self._piece, self._position())
        if left is not None and self._bound is not None:
            left, taken = bound_chunk(left, self._bound, self._taken)
            self._taken, self._is_over = self._taken + taken, left.seen < chunk.seen
        if left is not None:
            super().write(left)


def _system(rows: pa.RecordBatch) -> tuple[list[str], list[str]]:
    """The operation of each row, and which of the columns it does not carry."""
    count, names = rows.num_rows, rows.schema.names
    operations = [str(op) for op in rows.column(OP).to_pylist()] if OP in names else ["0"] * count
    if ABSENT not in names:
        return operations, [""] * count
    masks = rows.column(ABSENT).to_pylist()
    return operations, ["" if not mask else _digits(mask) for mask in masks]


def _digits(mask: bytes) -> str:
    bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")
    return "".join(map(str, bits))


def _too_long(lengths: Sequence[int], most: int) -> dict[int, str]:
    said = f"characters are more than one statement takes (maxStatementLength allows {most})"
    return {row: f"{found} {said}" for row, found in enumerate(lengths) if found > most}
