"""Inside a task: the rows of one slice, and what was rejected of it, on their way to one commit."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.memory.options import MemorySinkOptions
from dataflow_assets.connectors.memory.rejected.error_sink import beside, store_records
from dataflow_assets.connectors.memory.sink.checkpoint import load, move
from dataflow_assets.connectors.memory.store import Store
from dataflow_assets.contracts import (
    OFFSET,
    OP,
    SYSTEM_COLUMNS,
    Chunk,
    ErrorRecord,
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
    utc_now,
)
from dataflow_assets.sdk.rejected_records import error_record, settle
from dataflow_assets.sdk.sink.decide import check_planned, check_recorded, is_covered
from dataflow_assets.sdk.sink.state import BranchState, check_owner

Row = tuple[Any, ...]


class MemoryStaged(NamedTuple):
    """What a slice adds to its table, and what it adds beside the table."""

    rows: list[Row]
    rejected: list[ErrorRecord]


def insert(connection: sqlite3.Connection, table: str, staged: MemoryStaged) -> None:
    connection.executemany("insert into rows values (?, ?, ?, ?, ?, ?, ?)", staged.rows)
    store_records(connection, beside(table), staged.rejected)


class _MemoryWriter(Writer):
    def __init__(self, sink: MemorySinkOptions, ticket: Ticket, piece: Slice) -> None:
        self._sink, self._ticket, self._piece = sink, ticket, piece
        self._target = ticket.target
        self._rows: list[Row] = []
        self._rejected: list[Rejection] = []
        self._seen: int | None = None
        self._bytes = 0

    def write(self, chunk: Chunk) -> None:
        failpoints.reach("memory.write")
        refused = []
        for row in chunk.rows.to_pylist():
            if row["id"] < 0 and row["id"] not in self._sink.allowed:
                refused.append(_negative(row, chunk.sent.get(row[OFFSET], Sent(None))))
            else:
                self._rows.append(self._row(row))
        self._rejected += [*chunk.rejected, *refused]
        self._seen = chunk.seen
        self._bytes += chunk.size

    def _row(self, row: dict[str, Any]) -> Row:
        values = json.dumps({k: v for k, v in row.items() if k not in SYSTEM_COLUMNS})
        where = (self._sink.table, self._target.flow, self._piece.partition)
        return (*where, row[OFFSET], row.get(N, 0), row.get(OP, 0), values)

    def _settle_rejected(self) -> list[ErrorRecord]:
        """The rejected records to keep beside the table; all others are where they belong."""
        kept: list[ErrorRecord] = []

        def keep(rejections: Sequence[Rejection]) -> None:
            kept.extend(error_record(self._target, self._piece, one) for one in rejections)

        settle(self._target, self._piece, self._rejected, keep)
        return kept

    def _check_stored(self, found: BranchState | None) -> BranchState:
        ticket, piece, flow = self._ticket, self._piece, self._target.flow
        stored = check_owner(flow, found, ticket.epoch, ticket.run, self._sink.address())
        if isinstance(piece, PartSlice):
            check_recorded(flow, piece, stored.intent)
        check_planned(flow, piece, stored.positions.get(piece.partition))
        return stored

    def _consumed_slice(self, complete: bool) -> Slice | None:
        """The slice as far as it was read; a part is read as a whole or not at all."""
        if isinstance(self._piece, PartSlice):
            return self._piece if complete else None
        return None if self._seen is None else replace(self._piece, upto=self._seen)

    def _skip_covered(self, stored: BranchState) -> None:
        position = stored.positions.get(self._piece.partition)
        if isinstance(position, int):
            self._rows = [row for row in self._rows if row[3] >= position]
            self._rejected = [one for one in self._rejected if one.offset >= position]

    def _receipt(self, position: Position | None, staged: tuple[str, ...] = ()) -> Receipt:
        totals = Totals(len(self._rows), len(self._rejected), self._bytes)
        return Receipt(self._target.branch, self._piece.partition, position, totals, staged)

    def abort(self) -> None:
        self._rows, self._rejected = [], []


def _negative(row: dict[str, Any], sent: Sent) -> Rejection:
    return Rejection(row[OFFSET], "sink", "id is negative", None, row.get(N, 0)).of(sent)


class SpanWriter(_MemoryWriter):
    """Its receipt carries the rows to the driver."""

    @override
    def close(self, complete: bool) -> Receipt:
        with Store(self._sink.store).transaction() as connection:
            self._skip_covered(self._check_stored(load(connection, self._target)))
        staged = msgspec.json.encode(MemoryStaged(self._rows, self._settle_rejected()))
        consumed = self._consumed_slice(complete)
        return self._receipt(consumed.upto if consumed else None, (staged.decode(),))


class SliceWriter(_MemoryWriter):
    """Commits rows and checkpoint itself."""

    @override
    def close(self, complete: bool) -> Receipt:
        consumed = self._consumed_slice(complete)
        rejected = self._settle_rejected() if consumed else []
        with Store(self._sink.store).transaction() as connection:
            stored = self._check_stored(load(connection, self._target))
            position = stored.positions.get(self._piece.partition, self._piece.after)
            if consumed is None or is_covered(consumed, position):
                self.abort()
                return self._receipt(position)
            self._skip_covered(stored)
            insert(connection, self._sink.table, MemoryStaged(self._rows, rejected))
            failpoints.reach("memory.before-commit")
            move(connection, self._target, lambda _: self._move(stored, consumed.upto))
        failpoints.reach("memory.committed")
        return self._receipt(consumed.upto)

    def _move(self, stored: BranchState, upto: Position) -> BranchState:
        positions = {**stored.positions, self._piece.partition: upto}
        totals = stored.checkpoint.totals + self._receipt(None).totals
        moved = replace(
            stored.checkpoint, positions=positions, totals=totals, committed_at=utc_now()
        )
        return replace(stored, checkpoint=moved)
