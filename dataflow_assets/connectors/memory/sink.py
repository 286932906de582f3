"""In-memory sinks: one that commits each slice in its task, one that publishes whole spans."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Literal

import msgspec
import pyarrow as pa

from dataflow_assets import failpoints
from dataflow_assets.connectors.memory.store import Store
from dataflow_assets.contracts import (
    OFFSET,
    OP,
    SYSTEM_COLUMNS,
    Address,
    Checkpoint,
    Chunk,
    Cut,
    Entries,
    Entry,
    ErrorRecord,
    ErrorStore,
    N,
    OffsetSlice,
    PartSlice,
    Position,
    Positions,
    Receipt,
    Rejection,
    Run,
    Sent,
    Sink,
    SinkSession,
    Slice,
    SourceSession,
    Span,
    Target,
    Ticket,
    Totals,
    Writer,
    divided,
    next_reading,
    refuse_shared,
    utc_now,
)
from dataflow_assets.errors import PermanentError, TakenOver
from dataflow_assets.sdk.rejected_records import HELD, entry, error_record, settle

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])

_INSERT = "insert into rows values (?, ?, ?, ?, ?, ?, ?)"
_GONE = "delete from checkpoints where id = '{}'"
_ERROR = """
insert into errors values (?, ?, ?, ?, ?, ?, 0) on conflict (id) do update
set body = excluded.body, reading = excluded.reading, replayed = 0
where excluded.reading > errors.reading
"""
_REJECT = "insert or ignore into rejected values (?, ?, ?, ?, ?, ?, ?)"
_BESIDE = "rejected beside "
"""Begins what the records rejected beside a table are called among the error records."""


class _MemorySink(Sink):
    store: str
    """Name of the store."""
    table: str
    """Table inside the store; its columns are `id` and `name`, and negative ids are refused."""
    allowed: frozenset[int] = frozenset()
    """Negative ids that it takes all the same."""
    exists: bool = True
    """False: the table is created from a sample of the first records."""

    def address(self) -> Address:
        """memory, store, table."""
        return Address("memory", self.store, None, self.table)

    def open(self, target: Target, run: Run) -> SinkSession:
        """Takes a new epoch."""
        return _Session(self, target, run)

    def error_store(self) -> ErrorStore:
        """Error records as rows of the table."""
        return _Errors(self.store, self.table)

    def rejected(self) -> Entries:
        """Those that were rejected beside the table."""
        return _Errors(self.store, f"{_BESIDE}{self.table}")

    def peek(self, target: Target) -> Checkpoint | None:
        """The stored checkpoint."""
        store = Store(self.store)
        store.create()
        with store.transaction() as connection:
            return _load(connection, target)[0]


def _error_rows(name: str, records: Sequence[ErrorRecord]) -> list[tuple[Any, ...]]:
    return [
        (one.id, name, one.flow, one.body.decode(), one.metadata.decode(), one.reading)
        for one in records
    ]


class _Errors(ErrorStore):
    def __init__(self, store: str, name: str) -> None:
        self._store, self._name = Store(store), name

    def prepare(self) -> None:
        self._store.create()

    def pending(self, flow: str, since: datetime | None, most: int) -> list[Entry]:
        self._store.create()
        sql = "select body from errors where flow = ? and name = ? and not replayed order by rowid"
        found = [entry(body) for (body,) in self._store.query(sql, flow, self._name)]
        new = [one for at, one in found if since is None or at >= since]
        return [one for one in new if not one.id.endswith(HELD)][:most]

    def replayed(self, entries: Sequence[Entry]) -> None:
        failpoints.reach("memory.replayed")
        sql = "update errors set replayed = 1 where id = ? and reading <= ?"
        with self._store.transaction() as connection:
            connection.executemany(sql, [one.name for one in entries])

    def store(self, records: Sequence[ErrorRecord]) -> None:
        failpoints.reach("memory.errors")
        with self._store.transaction() as connection:
            connection.executemany(_ERROR, _error_rows(self._name, records))


class MemorySliceSink(_MemorySink):
    """Commits rows and checkpoint of each slice in its task."""

    type: ClassVar[str] = "memory-slice"
    commits: ClassVar[Literal["slice", "span"]] = "slice"

    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        """A writer that commits in `close`."""
        return _SliceWriter(self, ticket, piece)


class MemorySpanSink(_MemorySink):
    """Stages rows in tasks and publishes the span in `finish`."""

    type: ClassVar[str] = "memory-span"
    commits: ClassVar[Literal["slice", "span"]] = "span"

    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        """A writer whose receipt carries the rows."""
        return _SpanWriter(self, ticket, piece)


def _load(
    connection: sqlite3.Connection, target: Target
) -> tuple[Checkpoint | None, list[PartSlice]]:
    sql = "select checkpoint, intent from checkpoints where id = ?"
    found = connection.execute(sql, (target.id,)).fetchone()
    if found is None:
        return None, []
    checkpoint = msgspec.json.decode(found[0], type=Checkpoint)
    return checkpoint, msgspec.json.decode(found[1] or "[]", type=list[PartSlice])


def _save(
    connection: sqlite3.Connection,
    target: Target,
    checkpoint: Checkpoint,
    intent: Sequence[PartSlice],
) -> None:
    values = (target.id, msgspec.json.encode(checkpoint), msgspec.json.encode(list(intent)))
    connection.execute("insert or replace into checkpoints values (?, ?, ?)", values)


def _others(connection: sqlite3.Connection, target: Target, identity: str | None) -> dict[str, str]:
    """The other flows that write into the same table, which has this identity."""
    found = {}
    for name, text in connection.execute("select id, checkpoint from checkpoints order by 1"):
        flow = name.removesuffix(f":{target.branch}")
        same = msgspec.json.decode(text, type=Checkpoint).target == identity
        if same and flow not in (name, target.flow):
            found[flow] = _GONE.format(name)
    return found


def _owned(
    connection: sqlite3.Connection, target: Target, epoch: int
) -> tuple[Checkpoint, list[PartSlice]]:
    checkpoint, intent = _load(connection, target)
    if checkpoint is None or checkpoint.epoch != epoch:
        by = checkpoint.run if checkpoint else "a reset"
        raise TakenOver(f"flow {target.flow} was taken over by {by}; this run stops")
    return checkpoint, intent


class _Session(SinkSession):
    def __init__(self, sink: _MemorySink, target: Target, run: Run) -> None:
        self._sink, self._target, self._run = sink, target, run
        self._store = Store(sink.store)
        self._store.create()
        if sink.exists and self.identity is None:
            self._store.identify(sink.table, "1")
        with self._store.transaction() as connection:
            stored, intent = _load(connection, target)
            known = stored or Checkpoint(epoch=0)
            self._checkpoint = replace(known, epoch=known.epoch + 1, run=str(run))
            _save(connection, target, self._checkpoint, intent)

    @property
    def checkpoint(self) -> Checkpoint:
        return self._checkpoint

    @property
    def identity(self) -> str | None:
        return self._store.identity(self._sink.table)

    def schema(self) -> pa.Schema | None:
        return SCHEMA if self.identity else None

    def create(self, sample: pa.Schema) -> None:
        if not set(sample.names) <= set(SCHEMA.names):
            raise PermanentError(f"the in-memory table has the columns {SCHEMA.names} only")
        self._store.identify(self._sink.table, "1")

    def holds_rows(self) -> bool:
        return bool(self._store.query("select 1 from rows where name = ?", self._sink.table))

    def adopt(self) -> None:
        identity = self.identity
        with self._store.transaction() as connection:
            stored, intent = _owned(connection, self._target, self._checkpoint.epoch)
            self._checkpoint = replace(stored, target=identity)
            _save(connection, self._target, self._checkpoint, intent)

    def restart(self, positions: Positions, source: str, *, empty: bool = False) -> None:
        identity = self.identity
        with self._store.transaction() as connection:
            stored, _ = _owned(connection, self._target, self._checkpoint.epoch)
            self._checkpoint = replace(
                stored,
                positions=dict(positions),
                source=source,
                target=identity,
                manifest=self._target.manifest,
                reading=next_reading(stored.reading),
            )
            _save(connection, self._target, self._checkpoint, [])
            if empty:
                others = _others(connection, self._target, identity)
                refuse_shared(self._target, self._sink.address(), others)
                connection.execute("delete from rows where name = ?", [self._sink.table])

    def begin(self, span: Span) -> Span:
        failpoints.reach("memory.begin")
        identity = self.identity
        with self._store.transaction() as connection:
            stored, intent = _owned(connection, self._target, self._checkpoint.epoch)
            if intent:
                return Span(tuple(_resumed(part, stored.positions) for part in intent))
            parts = [piece for piece in span.slices if isinstance(piece, PartSlice)]
            positions = {**span.after, **stored.positions}
            self._checkpoint = replace(stored, positions=positions, target=identity)
            _save(connection, self._target, self._checkpoint, parts)
        return span

    def divide(self, span: Span, cut: Cut) -> Span:
        with self._store.transaction() as connection:
            stored, intent = _owned(connection, self._target, self._checkpoint.epoch)
            if not intent:
                return span
            parts = divided((_resumed(part, stored.positions) for part in intent), cut)
            _save(connection, self._target, stored, parts)
        return Span(parts)

    def ticket(self) -> Ticket:
        failpoint = failpoints.from_environment()
        target = replace(self._target, reading=self._checkpoint.reading)
        return Ticket(target, self._run, self._checkpoint.epoch, SCHEMA, failpoint)

    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        failpoints.reach("memory.finish")
        with self._store.transaction() as connection:
            stored, _ = _owned(connection, self._target, self._checkpoint.epoch)
            if self._sink.commits == "span":
                stored = self._publish(connection, stored, span, receipts)
            positions = source.fold({**stored.positions, **span.upto})
            self._checkpoint = replace(stored, positions=positions, committed_at=utc_now())
            _save(connection, self._target, self._checkpoint, [])
        failpoints.reach("memory.finished")
        return self._checkpoint

    def _publish(
        self,
        connection: sqlite3.Connection,
        stored: Checkpoint,
        span: Span,
        receipts: Sequence[Receipt],
    ) -> Checkpoint:
        if all(stored.positions.get(s.partition) == s.upto for s in span.slices):
            return stored
        for receipt in receipts:
            rows, rejected, waiting = json.loads(receipt.staged[0])
            connection.executemany(_INSERT, rows)
            connection.executemany(_REJECT, rejected)
            connection.executemany(_ERROR, waiting)
            stored = replace(stored, totals=stored.totals + receipt.totals)
        return stored

    def forget(self) -> None:
        self._store.query("delete from checkpoints where id = ?", self._target.id)

    def close(self) -> None:
        pass


def _resumed(part: PartSlice, positions: Positions) -> PartSlice:
    """The part as recorded; empty when it was committed before the crash."""
    done = positions.get(part.partition) == part.upto
    return replace(part, after=part.upto) if done else part


class _MemoryWriter(Writer):
    def __init__(self, sink: _MemorySink, ticket: Ticket, piece: Slice) -> None:
        self._sink, self._ticket, self._piece = sink, ticket, piece
        self._target = ticket.target
        self._rows: list[tuple[Any, ...]] = []
        self._rejected: list[Rejection] = []
        self._seen: Position | None = None
        self._bytes = 0

    def write(self, chunk: Chunk) -> None:
        failpoints.reach("memory.write")
        refused = []
        for row in chunk.rows.to_pylist():
            if row["id"] < 0 and row["id"] not in self._sink.allowed:
                sent = chunk.sent.get(row[OFFSET], Sent(None))
                found = Rejection(row[OFFSET], "sink", "id is negative", sent.body, row.get(N, 0))
                refused.append(replace(found, metadata=sent.metadata, rows=sent.rows))
            else:
                self._rows.append(self._row(row))
        self._rejected += [*chunk.rejected, *refused]
        self._seen = chunk.seen
        self._bytes += chunk.size

    def _row(self, row: dict[str, Any]) -> tuple[Any, ...]:
        values = json.dumps({k: v for k, v in row.items() if k not in SYSTEM_COLUMNS})
        where = (self._sink.table, self._target.flow, self._piece.partition)
        return (*where, row[OFFSET], row.get(N, 0), row.get(OP, 0), values)

    def _settled(
        self, connection: sqlite3.Connection | None = None
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Rows of the table of rejected records, and what waits for a replay beside this one.

        What goes elsewhere is there.
        """
        rows: list[tuple[Any, ...]] = []
        waiting: list[tuple[Any, ...]] = []

        def beside(found: Sequence[Rejection]) -> None:
            rows.extend(map(self._rejection, found))
            records = [error_record(self._target, self._piece, one) for one in found]
            waiting.extend(_error_rows(f"{_BESIDE}{self._sink.table}", records))

        def joined(records: Sequence[ErrorRecord]) -> bool:
            errors = self._target.rejects.sink
            if connection is None or not isinstance(errors, _MemorySink):
                return False
            if errors.store != self._sink.store:
                return False
            connection.executemany(_ERROR, _error_rows(errors.table, records))
            return True

        settle(self._target, self._piece, self._rejected, beside, joined)
        return rows, waiting

    def _rejection(self, one: Rejection) -> tuple[Any, ...]:
        where = (self._sink.table, self._target.flow, self._piece.partition, one.offset)
        body = (one.body or b"").decode("utf-8", "replace")
        return (one.id(self._target, self._piece), *where, one.reason, body)

    def _receipt(self, position: Position | None, staged: tuple[str, ...] = ()) -> Receipt:
        totals = Totals(len(self._rows), len(self._rejected), self._bytes)
        return Receipt(self._target.branch, self._piece.partition, position, totals, staged)

    def abort(self) -> None:
        self._rows, self._rejected = [], []


class _SpanWriter(_MemoryWriter):
    def close(self, complete: bool) -> Receipt:  # noqa: ARG002 - the driver knows
        staged = json.dumps([self._rows, *self._settled()])
        return self._receipt(self._seen, (staged,))


class _SliceWriter(_MemoryWriter):
    def close(self, complete: bool) -> Receipt:
        with Store(self._sink.store).transaction() as connection:
            checkpoint, intent = _owned(connection, self._target, self._ticket.epoch)
            position = self._commit(connection, checkpoint, intent, complete=complete)
        failpoints.reach("memory.committed")
        return self._receipt(position)

    def _commit(
        self,
        connection: sqlite3.Connection,
        checkpoint: Checkpoint,
        intent: Sequence[PartSlice],
        *,
        complete: bool,
    ) -> Position | None:
        piece = self._piece
        stored = checkpoint.positions.get(piece.partition, piece.after)
        upto = self._seen if isinstance(piece, OffsetSlice) else piece.upto
        if upto is None or stored == upto or (isinstance(piece, PartSlice) and not complete):
            self.abort()
            return stored
        if isinstance(piece, OffsetSlice):
            self._skip_covered(piece, int(stored or 0))
        connection.executemany(_INSERT, self._rows)
        rejected, waiting = self._settled(connection)
        connection.executemany(_REJECT, rejected)
        connection.executemany(_ERROR, waiting)
        failpoints.reach("memory.before-commit")
        positions = {**checkpoint.positions, piece.partition: upto}
        totals = checkpoint.totals + self._receipt(None).totals
        checkpoint = replace(checkpoint, positions=positions, totals=totals)
        _save(connection, self._target, checkpoint, intent)
        return upto

    def _skip_covered(self, piece: OffsetSlice, stored: int) -> None:
        if stored < piece.after:
            raise PermanentError(f"somebody moved the checkpoint of partition {piece.partition}")
        self._rows = [row for row in self._rows if row[3] >= stored]
        self._rejected = [one for one in self._rejected if one.offset >= stored]
