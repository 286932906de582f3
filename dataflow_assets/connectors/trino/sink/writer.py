"""Inside a task: the rows of one slice, on their way to the one statement of the span."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.encode import lines
from dataflow_assets.connectors.trino.errors import TrinoFailure
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.rejected.error_sink import store
from dataflow_assets.connectors.trino.sink.refused_values import TrinoTrial
from dataflow_assets.connectors.trino.sink.suspects import TrinoBound, bound_chunk
from dataflow_assets.connectors.trino.table.stage import TrinoChunks, length_of
from dataflow_assets.connectors.trino.table.table import Column, TrinoPlace
from dataflow_assets.contracts import (
    ABSENT,
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
from dataflow_assets.sdk.key_folding import deletes
from dataflow_assets.sdk.rejected_records import settle
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sink.decide import without_covered

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


class TrinoWriter(Writer):
    """Its receipt has the rows, or names the attempt under which they wait."""

    def __init__(self, sink: TrinoSinkOptions, ticket: TrinoTicket, piece: Slice) -> None:
        assert ticket.stage is not None  # noqa: S101 - the session gives one
        failpoints.arm(ticket.failpoint)
        self._sink, self._ticket, self._piece = sink, ticket, piece
        self._names = [column.name for column in ticket.columns]
        with translate_errors(self._what):
            self._client = TrinoClient(sink, "dataflow-write")
        attempt, most = uuid.uuid4().hex, sink.max_statement_length
        self._chunks = TrinoChunks(self._client, ticket.stage, attempt, most)
        self._trial = TrinoTrial(self._client, ticket.columns, self._chunks.longest)
        self._position = ticket.positions.get(piece.partition)
        self._rejected: list[Rejection] = []
        self._seen: Position | None = None
        self._bytes = 0
        self._lacks = False
        self._bound = ticket.bounds.get(piece.partition)
        self._taken, self._ends = 0, False
        self._records, self._first = 0, 0
        """Of the rows that are staged."""

    @property
    def _what(self) -> str:
        return f"writing to {self._sink.address()}"

    @override
    def write(self, chunk: Chunk) -> None:
        if self._ends:
            return
        left = without_covered(chunk, self._piece, self._position)
        if left is not None and self._bound is not None:
            left, taken = bound_chunk(left, self._bound, self._taken)
            self._taken, self._ends = self._taken + taken, left.seen < chunk.seen
        self._seen = chunk.seen if left is None else left.seen
        if left is not None:
            with translate_errors(self._what):
                self._write(left)
            failpoints.reach("trino.write")

    def _write(self, chunk: Chunk) -> None:
        rows, refused = self._accept(chunk.rows)
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
        refused += [_rejection(rows, row, reason) for row, reason in sorted(bad.items())]
        self._lacks = self._lacks or ABSENT in rows.schema.names or OP in rows.schema.names
        here = [one.of(chunk.sent.get(one.offset, Sent(None))) for one in refused]
        self._rejected += [*chunk.rejected, *here]
        self._bytes += chunk.size

    def _count(self, offsets: npt.NDArray[np.int64]) -> None:
        """The rows of one record are in one chunk."""
        found = np.unique(offsets)
        if len(found) and not self._records:
            self._first = int(found[0])
        self._records += len(found)

    def _accept(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Rejection]]:
        """Without the deletes that mean nothing here."""
        deleted = deletes(rows)
        if not deleted.any() or (self._sink.upsert_mode and self._sink.traits.takes_deletes):
            return rows, []
        reason = _NO_DELETES if self._sink.upsert_mode else _APPENDED
        refused = [_rejection(rows, int(row), reason) for row in np.flatnonzero(deleted)]
        return rows.filter(pa.array(~deleted)), refused

    @override
    def close(self, complete: bool) -> Receipt:
        piece, target = self._piece, self._ticket.target
        if isinstance(piece, PartSlice) and not complete:
            self.abort()
            return Receipt(target.branch, piece.partition, None, Totals())
        with translate_errors(self._what):
            settle(target, piece, self._rejected, self._beside)
            staged = self._chunks.handed_over(lacks=self._lacks)
        staged = msgspec.structs.replace(staged, records=self._records, first=self._first)
        failpoints.reach("trino.staged")
        self._client.close()
        position = piece.upto if isinstance(piece, PartSlice) else self._seen
        totals = Totals(staged.rows, len(self._rejected), self._bytes)
        told = (msgspec.json.encode(staged).decode(),)
        return Receipt(target.branch, piece.partition, position, totals, told)

    def _beside(self, rejections: Sequence[Rejection]) -> None:
        store(self._client, self._sink, self._ticket.target, self._piece, rejections)

    @override
    def abort(self) -> None:
        """Closes the client; what is in the stage counts for nobody, and goes with it."""
        with suppress(TrinoFailure):
            self._client.close()


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


def _rejection(rows: pa.RecordBatch, row: int, reason: str) -> Rejection:
    offset = rows.column(OFFSET)[row].as_py()
    n = rows.column(N)[row].as_py() if N in rows.schema.names else 0
    return Rejection(offset, "sink", reason, None, n=n)
