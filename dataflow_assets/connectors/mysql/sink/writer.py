"""One slice in one transaction: its rows, what was rejected of it, and the checkpoint.

The branch's row is locked last, and only for the commit: it must be as it was when the slice began.
A second attempt at a slice, or a task of an older epoch, finds it moved, and nothing of it stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.mysql.client import MysqlClient, quote
from dataflow_assets.connectors.mysql.errors import MISSING, MysqlFailure
from dataflow_assets.connectors.mysql.options import MysqlSinkOptions
from dataflow_assets.connectors.mysql.pool import give, take
from dataflow_assets.connectors.mysql.rejected.error_sink import MysqlRejected
from dataflow_assets.connectors.mysql.sink.checkpoint import MysqlCheckpoint
from dataflow_assets.connectors.mysql.sink.load import MysqlLoader
from dataflow_assets.connectors.mysql.table.table import IDENTITY, identify
from dataflow_assets.contracts import (
    Chunk,
    PartSlice,
    Position,
    Rejection,
    Slice,
    Ticket,
    utc_now,
)
from dataflow_assets.errors import TransientError
from dataflow_assets.sdk.rejected_records import settle
from dataflow_assets.sdk.server_failure import ServerFailure
from dataflow_assets.sdk.sink.decide import check_planned, check_recorded
from dataflow_assets.sdk.sink.slice_commit import SliceCommit, SliceStore
from dataflow_assets.sdk.sink.state import BranchState, check_owner
from dataflow_assets.sdk.sql_table.rejected import rejected_row


class MysqlSliceStore(SliceStore):
    """One slice in one transaction of one connection."""

    def __init__(self, sink: MysqlSinkOptions, ticket: Ticket, piece: Slice) -> None:
        self._sink, self._ticket, self._piece = sink, ticket, piece
        self._link: MysqlClient | None = None
        self._loader: MysqlLoader
        self._stored: Position | None = None

    @override
    def begin(self) -> SliceCommit | None:
        self._link = take(self._sink)
        place, schema = quote(*self._sink.place()), self._ticket.schema
        self._loader = MysqlLoader(self._link, self._sink, place, schema)
        self._checkpoint.hold(self._piece.partition)
        self._link.run("START TRANSACTION")
        state = self._check(self._checkpoint.load())
        self._stored = self._position(state)
        return None if self._stored is None else SliceCommit(self._stored)

    @override
    def add(self, chunk: Chunk) -> Sequence[Rejection]:
        self._loader.add(chunk.rows, chunk.sent)
        failpoints.reach("mysql.load")
        return ()  # they show when it is flushed

    @override
    def commit(self, commit: SliceCommit) -> SliceCommit:
        target, loader = self._ticket.target, self._loader
        loader.flush()
        loader.check(target.source, self._piece)
        found = commit.refuse(loader.refused)
        settle(target, self._piece, found.rejected, self._beside)
        if found.rows:
            self._check_table()
        failpoints.reach("mysql.before-commit")
        self._checkpoint.move(lambda stored: self._move(self._check(stored), found))
        self._client.run("COMMIT")
        self._checkpoint.release(self._piece.partition)
        give(self._sink, self._client)
        self._link = None
        failpoints.reach("mysql.after-commit")
        return found

    @override
    def end(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()  # the server rolls back

    @override
    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except ServerFailure as failure:
            own = f".{self._sink.place()[1]}'"
            if (
                isinstance(failure, MysqlFailure)
                and failure.code in MISSING
                and own in str(failure)
            ):
                raise self._sink.dropped_error() from None
            raise failure.error(f"writing to {self._sink.address()}") from None

    def _check(self, found: BranchState | None) -> BranchState:
        ticket, piece, flow = self._ticket, self._piece, self._ticket.target.flow
        stored = check_owner(flow, found, ticket.epoch, ticket.run, self._sink.address())
        if isinstance(piece, PartSlice):
            check_recorded(flow, piece, stored.intent)
        check_planned(flow, piece, stored.positions.get(piece.partition))
        return stored

    def _check_table(self) -> None:
        """Asks for the table once more: from now on the locks of its rows keep it in place."""
        known = self._ticket.schema.metadata[IDENTITY].decode()
        self._sink.check_table(identify(self._client, self._sink), known)

    def _move(self, state: BranchState, commit: SliceCommit) -> BranchState:
        if self._position(state) != self._stored:
            raise TransientError(f"{self._sink.address()}: another attempt was first")
        moved = replace(
            state.checkpoint,
            positions={**state.positions, self._piece.partition: commit.position},
            totals=state.checkpoint.totals + commit.totals,
            committed_at=utc_now(),
        )
        return replace(state, checkpoint=moved)

    def _position(self, state: BranchState) -> Position | None:
        return state.positions.get(self._piece.partition, self._piece.after)

    def _beside(self, rejections: Sequence[Rejection]) -> None:
        rows = [rejected_row(self._ticket.target, self._piece, one) for one in rejections]
        MysqlRejected.beside(self._client, self._sink).append(rows)

    @property
    def _client(self) -> MysqlClient:
        assert self._link is not None, "a slice that has ended is used again"  # noqa: S101
        return self._link

    @property
    def _checkpoint(self) -> MysqlCheckpoint:
        return MysqlCheckpoint(self._client, self._sink.place()[0], self._ticket.target)
