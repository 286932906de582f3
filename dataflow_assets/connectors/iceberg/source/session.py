"""`IcebergSourceSession`: which snapshots come next, cut into parts before anything is read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dataflow_assets.connectors.iceberg.client import NessieCatalog, connect
from dataflow_assets.connectors.iceberg.errors import translate_errors
from dataflow_assets.connectors.iceberg.options import TableSourceOptions
from dataflow_assets.connectors.iceberg.source.data_files import SourceFile, files, row_groups
from dataflow_assets.connectors.iceberg.source.history import arrivals, lags, lineage
from dataflow_assets.connectors.iceberg.source.nessie_history import BranchHistory
from dataflow_assets.connectors.iceberg.source.operator_checkpoint import (
    position_after,
    position_after_checkpoint,
)
from dataflow_assets.connectors.iceberg.source.parts import (
    IcebergBounds,
    IcebergCut,
    IcebergPart,
    IcebergPiece,
    cut,
)
from dataflow_assets.connectors.iceberg.source.planning import IcebergAhead, SnapshotStep, ahead
from dataflow_assets.connectors.iceberg.source.read import read
from dataflow_assets.connectors.iceberg.table.position import BEGINNING, SnapshotPosition
from dataflow_assets.contracts import (
    Lag,
    Limit,
    Position,
    Positions,
    SourceSession,
    Span,
    fold_parts,
    utc_now,
)
from dataflow_assets.contracts.capabilities import AdoptsCheckpoints
from dataflow_assets.contracts.looking import Peeks
from dataflow_assets.errors import PermanentError, TransientError

TABLE = "table"  # the one partition
_UNBOUNDED = 1 << 62

log = logging.getLogger(__name__)


class IcebergSourceSession(SourceSession, AdoptsCheckpoints, Peeks):
    """Loads the table from the catalog for every question; `lags` judges by the last answer."""

    def __init__(self, source: TableSourceOptions, flow: str) -> None:
        self._source, self._flow = source, flow
        self._catalog = connect(source)
        self._history = (
            BranchHistory(self._catalog, source.identifier)
            if isinstance(self._catalog, NessieCatalog)
            else None
        )
        self._files: tuple[SnapshotPosition, tuple[SourceFile, ...]] | None = None
        self._reported: set[int] = set()
        self._table = self._load()

    def _load(self) -> Table:
        with translate_errors(self._source, "load"):
            table = self._catalog.table(self._source.identifier)
        if table is None:
            name = ".".join(self._source.identifier)
            raise PermanentError(
                f"table {name} does not exist at {self._source.address().connection}: nothing can "
                f"be read before somebody creates it; check {self._source.place}, and table"
            )
        return table

    def _look(self, *back_to: SnapshotPosition, whole: bool = False) -> Table:
        """The table as it is now, with the snapshots back to these, or with all that are known.

        Raises TransientError for another table: a new session tells.
        """
        table = self._load()
        if table.metadata.table_uuid != self._table.metadata.table_uuid:
            name = ".".join(self._source.identifier)
            raise TransientError(f"table {name} was dropped and recreated while it was read")
        if self._history is not None:
            with translate_errors(self._source, "ask Nessie for the history of"):
                table = self._history.complete(table, back_to, whole=whole)
        self._table = table
        return table

    @property
    def identity(self) -> str:
        return str(self._table.metadata.table_uuid)

    def start(self, where: str | None = None) -> Positions:
        """The current snapshot in full, whichever is current by then, or behind the given one.

        A timestamp: behind the snapshots that came before it, and before any other one. When a
        snapshot was merged or published decides, not when it was written.
        """
        snapshot_id = self._source.start_snapshot_id
        if where is None and snapshot_id is not None:
            there = SnapshotPosition(int(snapshot_id))
            return _positions(position_after(self._look(there).metadata, int(snapshot_id)))
        if where in (None, "earliest"):
            return _positions(BEGINNING)
        head = self._look(whole=where != "latest").metadata.current_snapshot()
        if where == "latest":
            return _positions(_after(head))
        metadata = self._table.metadata
        came = self._history.arrivals() if self._history else arrivals(metadata, head)
        return _positions(_after(_before(lineage(metadata, head), came, where)))

    def end(self) -> Positions:
        return _positions(_after(self._look().metadata.current_snapshot()))

    def lags(self, partition: str, position: Position | None, end: Position) -> bool:  # noqa: ARG002 - there is one
        """Judges by the table's history as it was seen last."""
        return lags(self._table.metadata, _parse(position), SnapshotPosition.parse(end))

    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        """Parts of one long snapshot, or one part of several short ones.

        Where `until` is inside a snapshot that this reader reads by other files (all of them, or
        those that it added), the span goes on to the end of it.
        """
        stop = SnapshotPosition.parse(until[TABLE]) if until else None
        start = _parse(after.get(TABLE))
        table = self._look(start, *([stop] if stop else []))
        head = _head(table, stop)
        if head is None:
            return Span(())
        coming = self._ahead(table, start, head)
        with translate_errors(self._source, "plan a read of"):
            piece = cut(self._pieces(table, coming, stop), self._bounds(limit), self._groups)
        if piece is None and coming.blocked:
            raise PermanentError(f"{'.'.join(table.name())}: {coming.blocked}")
        return Span(()) if piece is None else _span(table, piece)

    def _ahead(self, table: Table, start: SnapshotPosition, head: Snapshot) -> IcebergAhead:
        return ahead(table.metadata, start, head, self._source.on_source_rewrite)

    def _pieces(
        self, table: Table, coming: IcebergAhead, stop: SnapshotPosition | None
    ) -> Iterator[IcebergPiece]:
        for step in coming.steps:
            if step.note and step.snapshot.snapshot_id not in self._reported:
                self._reported.add(step.snapshot.snapshot_id)
                log.warning("flow %s: passed over: %s", self._flow, step.note)
            here = stop if stop and stop.scan and stop.same_scan(step.start) else None
            if here is None or step.start.place < here.place:
                yield IcebergPiece(step.start, self._files_of(table, step), here)

    def _files_of(self, table: Table, step: SnapshotStep) -> tuple[SourceFile, ...]:
        scan = step.start.scan
        if scan is None:
            return ()
        key = SnapshotPosition.inside(step.snapshot, scan)
        if self._files is None or self._files[0] != key:
            self._files = key, files(table, step.snapshot, scan)
        return self._files[1]

    def _bounds(self, limit: Limit) -> IcebergBounds:
        source = self._source
        rows, size = source.max_rows_per_poll, source.max_bytes_per_poll
        parts = source.parallel_reads
        return IcebergBounds(
            parts, limit.records, limit.bytes, rows or _UNBOUNDED, size or _UNBOUNDED
        )

    def _groups(self, file: SourceFile) -> tuple[int, ...]:
        return row_groups(self._table.io, file)

    def fold(self, positions: Positions) -> Positions:
        """All parts of a span carry the position behind the whole of it."""
        return {TABLE: fold_parts(positions, TABLE) or SnapshotPosition().text()}

    def adopt(self, document: Mapping[str, Any]) -> Positions:
        return _positions(position_after_checkpoint(self._look(whole=True).metadata, document))

    def lag(self, after: Positions) -> Lag:
        """Rows by the snapshots' summaries; the age of the oldest snapshot with unread rows."""
        start = _parse(after.get(TABLE))
        table = self._look(start)
        head = table.metadata.current_snapshot()
        ends = _positions(_after(head))
        if head is None:
            return Lag(0, 0.0, ends)
        steps = self._ahead(table, start, head).steps
        unread = [step for step in steps if step.rows]
        oldest = min((step.snapshot.timestamp_ms for step in unread), default=None)
        seconds = 0.0 if oldest is None else max(0.0, utc_now().timestamp() - oldest / 1000)
        return Lag(sum(step.rows for step in unread), seconds, ends)

    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        span = self.plan(after, Limit(records=limit))
        if not span.slices:
            return {}
        batches = read(self._source, span.slices[0], self._source.metadata_columns)
        rows = pa.Table.from_batches(batches).slice(0, limit).combine_chunks().to_batches()
        return {TABLE: rows[0]} if rows else {}


def _span(table: Table, found: IcebergCut) -> Span:
    uuid = str(table.metadata.table_uuid)
    parts = (IcebergPart(uuid, ranges).text() for ranges in found.parts)
    return Span.of_parts(found.end.text(), parts, full=found.more)


def _head(table: Table, stop: SnapshotPosition | None) -> Snapshot | None:
    """The snapshot to read up to; None where there is none."""
    if stop is None:
        return table.metadata.current_snapshot()
    if stop.snapshot is None:
        return None
    head = table.metadata.snapshot_by_id(stop.snapshot)
    if head is None:
        raise TransientError(f"{stop} of table {'.'.join(table.name())} expired during the run")
    return head


def _before(line: Iterable[Snapshot], came: Mapping[int, int], where: str) -> Snapshot | None:
    """The newest snapshot such that all which came at a time or later come after it."""
    at = datetime.fromisoformat(where)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    limit = at.timestamp() * 1000
    newest: Snapshot | None = None
    for one in line:  # the newest first
        earlier = came.get(one.snapshot_id, one.timestamp_ms) < limit
        newest = (newest or one) if earlier else None  # clocks differ: a later time may come again
    return newest


def _after(snapshot: Snapshot | None) -> SnapshotPosition:
    return SnapshotPosition.after(snapshot) if snapshot else BEGINNING


def _parse(text: Position | None) -> SnapshotPosition:
    return BEGINNING if text is None else SnapshotPosition.parse(text)


def _positions(position: SnapshotPosition) -> Positions:
    return {TABLE: position.text()}
