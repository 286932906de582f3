"""One slice as one INSERT: rows are kept until all were seen, then committed as chunks.

What was refused before is stored ahead of the rows: a crash in between stores it again under the
same ids. What the table itself refuses is found by trial and left out of the same INSERT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

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
from dataflow_assets.connectors.clickhouse.table.table import look_again
from dataflow_assets.contracts import Chunk, Rejection, Slice, Ticket, Totals
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.refused_rows import SuspectRows
from dataflow_assets.sdk.rejected_records import settle
from dataflow_assets.sdk.server_failure import Fault, ServerFailure, translate_errors
from dataflow_assets.sdk.sink.slice_commit import SliceCommit, SliceStore
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


class ClickhouseSliceStore(SliceStore):
    """Keeps what it sees of one slice, and inserts it at the end."""

    def __init__(self, sink: ClickhouseSinkOptions, ticket: Ticket, piece: Slice) -> None:
        self._sink, self._ticket, self._piece = sink, ticket, piece
        self._facts = Facts.of(ticket.schema)
        self._client: Client | None = None
        self._chunks: ClickhouseChunks
        self._buffer = ClickhouseBuffer(ticket.schema, self._facts)
        self._refused: list[Rejection] = []

    @override
    def begin(self) -> SliceCommit | None:
        target = self._ticket.target
        self._client = connect(self._sink.dsn(), f"dataflow {target.flow}")
        replicated = self._facts.replicated
        log = ClickhouseCheckpointTable(
            self._client, *self._sink.place(), target, replicated=replicated
        )
        branch = BranchCheckpoint(log, target, self._ticket.epoch)
        self._chunks = ClickhouseChunks(branch, log, self._piece, target.id)
        position = self._chunks.partition.position
        self._sink.check_table(log.uuid, self._facts.uuid)
        if position is None:
            return None
        return SliceCommit(position, staged=(ClickhouseCommitted(self._chunks.partition).dump(),))

    @override
    def add(self, chunk: Chunk) -> Sequence[Rejection]:
        refused = self._buffer.add(chunk)
        failpoints.reach("clickhouse.write")
        return refused

    @override
    def commit(self, commit: SliceCommit) -> SliceCommit:
        self._settle(commit.rejected)
        chunks, seen = self._chunks, commit.position
        known, position = chunks.partition, chunks.partition.position
        if isinstance(seen, int) and isinstance(position, int) and chunks.short(seen):
            return SliceCommit(position, staged=(ClickhouseCommitted(known, seen).dump(),))
        self._check_altered()  # before the chunk is recorded, which must be inserted as it is
        chunks.commit(seen, self._rows(), self._facts.at)
        staged = (ClickhouseCommitted(chunks.partition).dump(),)
        return replace(commit.refuse(self._refused), staged=staged)

    @override
    def end(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    @override
    def errors(self) -> AbstractContextManager[None]:
        return translate_errors(f"writing to {self._sink.address()}")

    def _check_altered(self) -> None:
        """Raises TransientError where columns were altered: -5 in UInt32 would be 4294967291.

        Also where the first view came: its failures leave rows in the table. Of a column that is
        gone the INSERT says so.
        """
        known, facts = self._facts.column_types, self._facts
        types, viewed = look_again(self._session(), *self._sink.place())
        if types.keys() >= known.keys() and (types, viewed) != (known, facts.views):
            raise self._sink.altered_error()

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
        return Totals(rows, len(found.rejected) + refused, found.size)

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
        found = self._buffer.rejections(rows, refused)
        self._settle(found)
        self._refused += found
        return without(rows, refused)

    def _load(self) -> ClickhouseInsert:
        return ClickhouseInsert(
            self._session(), self._sink.place(), self._facts, self._ticket.schema
        )

    def _settle(self, found: Sequence[Rejection]) -> None:
        settle(self._ticket.target, self._piece, found, self._beside)

    def _beside(self, found: Sequence[Rejection]) -> None:
        rows = [rejected_row(self._ticket.target, self._piece, one) for one in found]
        table = ClickhouseRejected.beside(self._session(), self._sink)
        table.prepare()
        table.append(rows)

    def _session(self) -> Client:
        assert self._client is not None, "a writer that ended is used again"  # noqa: S101
        return self._client
