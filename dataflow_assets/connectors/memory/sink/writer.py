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
    Position,
    Rejection,
    Slice,
    Ticket,
    utc_now,
)
from dataflow_assets.errors import TransientError
from dataflow_assets.sdk.rejected_records import error_record, settle
from dataflow_assets.sdk.sink.decide import check_planned, check_recorded
from dataflow_assets.sdk.sink.slice_commit import SliceCommit, SliceStore, rejections
from dataflow_assets.sdk.sink.state import BranchState, check_owner

Row = tuple[Any, ...]


class MemoryStaged(NamedTuple):
    """What a slice adds to its table, and what it adds beside the table."""

    rows: list[Row]
    rejected: list[ErrorRecord]


def insert(connection: sqlite3.Connection, table: str, staged: MemoryStaged) -> None:
    connection.executemany("insert into rows values (?, ?, ?, ?, ?, ?, ?)", staged.rows)
    store_records(connection, beside(table), staged.rejected)


class MemorySpanStore(SliceStore):
    """Keeps the rows; its receipt carries them to the driver."""

    def __init__(self, sink: MemorySinkOptions, ticket: Ticket, piece: Slice) -> None:
        self._sink, self._ticket, self._piece = sink, ticket, piece
        self._staged = MemoryStaged([], [])

    @override
    def add(self, chunk: Chunk) -> Sequence[Rejection]:
        failpoints.reach("memory.write")
        refused = {}
        for at, row in enumerate(chunk.rows.to_pylist()):
            if row["id"] < 0 and row["id"] not in self._sink.allowed:
                refused[at] = "id is negative"
            else:
                self._staged.rows.append(self._row(row))
        return rejections(chunk.rows, refused, chunk.sent)

    @override
    def commit(self, commit: SliceCommit) -> SliceCommit:
        settle(self._ticket.target, self._piece, commit.rejected, self._beside)
        return replace(commit, staged=(msgspec.json.encode(self._staged).decode(),))

    @override
    def end(self) -> None:
        self._staged = MemoryStaged([], [])

    def _row(self, row: dict[str, Any]) -> Row:
        values = json.dumps({k: v for k, v in row.items() if k not in SYSTEM_COLUMNS})
        where = (self._sink.table, self._ticket.target.flow, self._piece.partition)
        return (*where, row[OFFSET], row.get(N, 0), row.get(OP, 0), values)

    def _beside(self, found: Sequence[Rejection]) -> None:
        records = (error_record(self._ticket.target, self._piece, one) for one in found)
        self._staged.rejected.extend(records)


class MemorySliceStore(MemorySpanStore):
    """Commits rows and checkpoint itself, unless another attempt was first."""

    _stored: Position | None = None

    @override
    def begin(self) -> SliceCommit | None:
        with Store(self._sink.store).transaction() as connection:
            self._stored = self._position(self._load(connection))
        return None if self._stored is None else SliceCommit(self._stored)

    @override
    def commit(self, commit: SliceCommit) -> SliceCommit:
        settle(self._ticket.target, self._piece, commit.rejected, self._beside)
        with Store(self._sink.store).transaction() as connection:
            state = self._load(connection)
            if self._position(state) != self._stored:
                raise TransientError(f"{self._sink.address()}: another attempt was first")
            insert(connection, self._sink.table, self._staged)
            failpoints.reach("memory.before-commit")
            move(connection, self._ticket.target, lambda _: self._move(state, commit))
        failpoints.reach("memory.committed")
        return commit

    def _load(self, connection: sqlite3.Connection) -> BranchState:
        ticket, piece, flow = self._ticket, self._piece, self._ticket.target.flow
        found = load(connection, ticket.target)
        stored = check_owner(flow, found, ticket.epoch, ticket.run, self._sink.address())
        check_recorded(flow, piece, stored.intent)
        check_planned(flow, piece, stored.positions.get(piece.partition))
        return stored

    def _position(self, state: BranchState) -> Position | None:
        return state.positions.get(self._piece.partition, self._piece.after)

    def _move(self, state: BranchState, commit: SliceCommit) -> BranchState:
        positions = {**state.positions, self._piece.partition: commit.position}
        totals = state.checkpoint.totals + commit.totals
        moved = replace(
            state.checkpoint, positions=positions, totals=totals, committed_at=utc_now()
        )
        return replace(state, checkpoint=moved)
