"""The driver's side of the sinks: one epoch of one branch, and what is committed outside tasks."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.memory.options import MemorySinkOptions
from dataflow_assets.connectors.memory.sink.checkpoint import load, load_owned, other_flows, save
from dataflow_assets.connectors.memory.sink.writer import Staged, insert
from dataflow_assets.connectors.memory.store import Store
from dataflow_assets.contracts import (
    Checkpoint,
    Cut,
    PartSlice,
    Positions,
    Receipt,
    Run,
    SinkSession,
    SourceSession,
    Span,
    Target,
    Ticket,
    divided,
    next_reading,
    refuse_shared,
    utc_now,
)
from dataflow_assets.errors import PermanentError

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


class MemorySession(SinkSession):
    """Opening it takes the epoch; every change of the checkpoint asserts that it still has it."""

    def __init__(self, sink: MemorySinkOptions, target: Target, run: Run) -> None:
        self._sink, self._target, self._run = sink, target, run
        self._store = Store(sink.store)
        self._store.create()
        if sink.exists and self.identity is None:
            self._store.identify(sink.table, "1")
        with self._store.transaction() as connection:
            stored, intent = load(connection, target)
            known = stored or Checkpoint(epoch=0)
            self._checkpoint = replace(known, epoch=known.epoch + 1, run=str(run))
            save(connection, target, self._checkpoint, intent)

    @property
    @override
    def checkpoint(self) -> Checkpoint:
        return self._checkpoint

    @property
    @override
    def identity(self) -> str | None:
        return self._store.identity(self._sink.table)

    @override
    def schema(self) -> pa.Schema | None:
        return SCHEMA if self.identity else None

    @override
    def create(self, sample: pa.Schema) -> None:
        if not set(sample.names) <= set(SCHEMA.names):
            raise PermanentError(f"the in-memory table has the columns {SCHEMA.names} only")
        self._store.identify(self._sink.table, "1")

    @override
    def holds_rows(self) -> bool:
        return bool(self._store.query("select 1 from rows where name = ?", self._sink.table))

    @override
    def adopt(self) -> None:
        identity = self.identity
        with self._store.transaction() as connection:
            stored, intent = self._owned(connection)
            self._save(connection, replace(stored, target=identity), intent)

    @override
    def restart(self, positions: Positions, source: str, *, empty: bool = False) -> None:
        identity = self.identity
        with self._store.transaction() as connection:
            stored, _ = self._owned(connection)
            restarted = replace(
                stored,
                positions=dict(positions),
                source=source,
                target=identity,
                manifest=self._target.manifest,
                reading=next_reading(stored.reading),
            )
            self._save(connection, restarted, ())
            if empty:
                others = other_flows(connection, self._target, identity)
                refuse_shared(self._target, self._sink.address(), others)
                connection.execute("delete from rows where name = ?", [self._sink.table])

    @override
    def begin(self, span: Span) -> Span:
        failpoints.reach("memory.begin")
        identity = self.identity
        with self._store.transaction() as connection:
            stored, intent = self._owned(connection)
            if intent:
                return Span(tuple(_resumed(part, stored.positions) for part in intent))
            parts = [piece for piece in span.slices if isinstance(piece, PartSlice)]
            positions = {**span.after, **stored.positions}
            self._save(connection, replace(stored, positions=positions, target=identity), parts)
        return span

    @override
    def divide(self, span: Span, cut: Cut) -> Span:
        with self._store.transaction() as connection:
            stored, intent = self._owned(connection)
            if not intent:
                return span
            parts = divided((_resumed(part, stored.positions) for part in intent), cut)
            save(connection, self._target, stored, parts)
        return Span(parts)

    @override
    def ticket(self) -> Ticket:
        failpoint = failpoints.from_environment()
        target = replace(self._target, reading=self._checkpoint.reading)
        return Ticket(target, self._run, self._checkpoint.epoch, SCHEMA, failpoint)

    @override
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        failpoints.reach("memory.finish")
        with self._store.transaction() as connection:
            stored, _ = self._owned(connection)
            if self._sink.commits == "span":
                stored = self._publish(connection, stored, span, receipts)
            positions = source.fold({**stored.positions, **span.upto})
            finished = replace(stored, positions=positions, committed_at=utc_now())
            self._save(connection, finished, ())
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
            staged = msgspec.json.decode(receipt.staged[0], type=Staged)
            insert(connection, self._sink.table, staged)
            stored = replace(stored, totals=stored.totals + receipt.totals)
        return stored

    @override
    def forget(self) -> None:
        self._store.query("delete from checkpoints where id = ?", self._target.id)

    @override
    def close(self) -> None:
        pass

    def _owned(self, connection: sqlite3.Connection) -> tuple[Checkpoint, Sequence[PartSlice]]:
        return load_owned(connection, self._target, self._checkpoint.epoch)

    def _save(
        self, connection: sqlite3.Connection, checkpoint: Checkpoint, intent: Sequence[PartSlice]
    ) -> None:
        save(connection, self._target, checkpoint, intent)
        self._checkpoint = checkpoint


def _resumed(part: PartSlice, positions: Positions) -> PartSlice:
    """The part as recorded; empty when it was committed before the crash."""
    done = positions.get(part.partition) == part.upto
    return replace(part, after=part.upto) if done else part
