"""One slice as one INSERT: rows are kept until all were seen, then committed as chunks.

What was refused before is stored ahead of the rows: a crash in between stores it again under the
same ids. What the table itself refuses is found by trial and left out of the same INSERT.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.clickhouse.client import Client, connect
from dataflow_assets.connectors.clickhouse.errors import ClickhouseFailure
from dataflow_assets.connectors.clickhouse.options import ClickhouseSinkOptions
from dataflow_assets.connectors.clickhouse.rejected.error_sink import ClickhouseRejected
from dataflow_assets.connectors.clickhouse.sink.buffer import ClickhouseBuffer, without
from dataflow_assets.connectors.clickhouse.sink.checkpoint import BranchCheckpoint
from dataflow_assets.connectors.clickhouse.sink.chunks import (
    ClickhouseChunks,
    ClickhousePiece,
    ClickhouseRows,
)
from dataflow_assets.connectors.clickhouse.sink.insert import ClickhouseInsert, Facts
from dataflow_assets.connectors.clickhouse.sink.kept_values import Filled, fill_gaps
from dataflow_assets.connectors.clickhouse.sink.stored_rows import StoredRows
from dataflow_assets.connectors.clickhouse.table.checkpoint_log import Border, ClickhousePartition
from dataflow_assets.connectors.clickhouse.table.checkpoint_table import ClickhouseCheckpointTable
from dataflow_assets.contracts import (
    Chunk,
    OffsetSlice,
    Receipt,
    Rejection,
    Slice,
    Ticket,
    Totals,
    Writer,
)
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.refused_rows import SuspectRows
from dataflow_assets.sdk.rejected_records import settle
from dataflow_assets.sdk.server_failure import Fault, ServerFailure
from dataflow_assets.sdk.sql_table.rejected import rejected_row


@dataclass(frozen=True)
class ClickhouseCommitted:
    """What a receipt tells the driver. `seen`: all there was, where a recorded chunk goes on."""

    partition: ClickhousePartition
    seen: int | None = None

    def dump(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def parse(cls, text: str) -> ClickhouseCommitted:
        return decode_json(text, cls)


class ClickhouseWriter(Writer):
    """Keeps what it sees of one slice, and commits it in `close`."""

    def __init__(self, sink: ClickhouseSinkOptions, ticket: Ticket, piece: Slice) -> None:
        failpoints.arm(ticket.failpoint)
        self._sink = sink
        self._ticket = ticket
        self._piece = piece
        self._facts = Facts.of(ticket.schema)
        self._client: Client | None = None
        self._chunks: ClickhouseChunks | None = None
        self._first: int | None = 0
        self._buffer = ClickhouseBuffer(ticket.schema, self._facts)
        self._seen: int | None = None
        self._totals = Totals()

    @override
    def write(self, chunk: Chunk) -> None:
        self._begun()
        if self._first is None or chunk.seen <= self._first:
            return
        self._buffer.add(chunk, self._first)
        self._seen = chunk.seen
        failpoints.reach("clickhouse.write")

    @override
    def close(self, complete: bool) -> Receipt:
        committed = self._commit(complete)
        self.abort()
        position = committed.partition.position if committed.seen is None else None
        branch, told = self._ticket.target.branch, (committed.dump(),)
        staged = told if position is not None or committed.seen is not None else ()
        return Receipt(branch, self._piece.partition, position, self._totals, staged)

    @override
    def abort(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _begun(self) -> ClickhouseChunks:
        if self._chunks is None:
            target = self._ticket.target
            with self._guard():
                self._client = connect(self._sink.dsn(), f"dataflow {target.flow}")
                replicated = self._facts.replicated
                log = ClickhouseCheckpointTable(
                    self._client, *self._sink.place(), target, replicated=replicated
                )
                branch = BranchCheckpoint(log, target, self._ticket.epoch)
                chunks = ClickhouseChunks(branch, log, self._piece, target.id)
                self._first = chunks.first()
                self._sink.check_table(log.uuid, self._facts.uuid)
                self._chunks = chunks
        return self._chunks

    def _commit(self, complete: bool) -> ClickhouseCommitted:
        if not isinstance(self._piece, OffsetSlice):
            return (
                self._commit_part() if complete else ClickhouseCommitted(ClickhousePartition(None))
            )
        if self._seen is not None:
            return self._commit_prefix(self._seen)
        return ClickhouseCommitted(
            self._chunks.partition if self._chunks else ClickhousePartition(None)
        )

    def _commit_prefix(self, seen: int) -> ClickhouseCommitted:
        chunks = self._begun()
        self._settle(self._buffer.rejected)
        with self._guard():
            short = chunks.short(seen)
            if not short:
                chunks.commit(seen, self._rows(), self._facts.at)
        return ClickhouseCommitted(chunks.partition, seen if short else None)

    def _commit_part(self) -> ClickhouseCommitted:
        chunks = self._begun()
        if self._first is not None:
            self._settle(self._buffer.rejected)
            with self._guard():
                chunks.commit(self._piece.upto, self._rows(), self._facts.at)
        return ClickhouseCommitted(chunks.partition)

    def _rows(self) -> ClickhouseRows:
        return ClickhouseRows(self._digest, self._insert)

    def _digest(self, piece: ClickhousePiece) -> str:
        return self._buffer.digest(piece) if self._facts.partitioned else ""

    def _insert(self, piece: ClickhousePiece, border: Border) -> Totals:
        found = self._buffer.cut(piece)
        failpoints.reach("clickhouse.before-insert")
        whole = self._fill(found.rows)
        refused = len(whole.refused)
        refused += self._store(self._without_refused(whole.rows, whole.refused), piece, border)
        rows = found.rows.num_rows - refused  # with those that others of the INSERT replace
        totals = Totals(rows, len(found.rejected) + refused, found.size)
        self._totals += totals
        return totals

    def _store(self, rows: pa.Table, piece: ClickhousePiece, border: Border) -> int:
        """One INSERT of the rows but for those that are refused; how many these are."""
        before = int(rows.num_rows)
        if self._facts.views and before:
            # Where a view fails, ClickHouse has stored the rows in the table: too late to try.
            rows = self._without_refused(rows, self._find_refused(rows))
        failure = self._load().insert(rows, piece.token, border.version)
        if failure is not None:
            reasons = self._find_refused(rows, failure)
            if not reasons:
                where = f"{self._ticket.target.source}, partition {self._piece.partition}"
                where = f"{where}, {piece.after} to {piece.upto}"
                raise failure.error(f"writing to {self._sink.address()}: no row alone, {where}")
            rows = self._without_refused(rows, reasons)
            failpoints.reach("clickhouse.refused")
            failure = self._load().insert(rows, piece.token, border.version)
        if failure is not None:
            raise failure
        return before - int(rows.num_rows)

    def _fill(self, rows: pa.Table) -> Filled:
        schema, facts = self._ticket.schema, self._facts
        stored = StoredRows(self._session(), self._sink.place(), schema, facts.replicated)
        in_order = self._sink.replacing_version_column is None
        return fill_gaps(rows, schema, stored, in_order=in_order)

    def _find_refused(
        self, rows: pa.Table, known: ServerFailure | None = None
    ) -> Mapping[int, str]:
        suspects = SuspectRows()
        try:
            found = self._load().refused_rows(rows, suspects)
        except ClickhouseFailure as failure:
            if known is None and failure.fault is not Fault.OUTSIDE:
                return {}  # this user may not try it: the table itself is asked
            raise known or failure from failure
        reasons = {one.at: one.failure.reason for one in found}
        rejections = self._buffer.rejections(rows, reasons)
        for rejection, one in zip(rejections, found, strict=True):
            suspects.doubt(rejection, one.failure)
        suspects.check(self._ticket.target.source, self._piece)
        return reasons

    def _without_refused(self, rows: pa.Table, refused: Mapping[int, str]) -> pa.Table:
        """Without those that are refused, once they are settled."""
        if not refused:
            return rows
        self._settle(self._buffer.rejections(rows, refused))
        return without(rows, refused)

    def _load(self) -> ClickhouseInsert:
        return ClickhouseInsert(
            self._session(), self._sink.place(), self._facts, self._ticket.schema
        )

    def _settle(self, found: Sequence[Rejection]) -> None:
        settle(self._ticket.target, self._piece, found, self._beside)

    def _beside(self, found: Sequence[Rejection]) -> None:
        rows = [rejected_row(self._ticket.target, self._piece, one) for one in found]
        with self._guard():
            table = ClickhouseRejected.beside(self._session(), self._sink)
            table.prepare()
            table.append(rows)

    def _session(self) -> Client:
        assert self._client is not None, "a writer that ended is used again"  # noqa: S101
        return self._client

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except ServerFailure as failure:
            self.abort()
            raise failure.error(f"writing to {self._sink.address()}") from None
        except BaseException:
            self.abort()
            raise
