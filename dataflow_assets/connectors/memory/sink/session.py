"""The driver's side of the sinks: one epoch of one branch, and what is committed outside tasks."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.memory.options import MemorySinkOptions
from dataflow_assets.connectors.memory.sink.checkpoint import load, move, other_flows
from dataflow_assets.connectors.memory.sink.writer import MemoryStaged, insert
from dataflow_assets.connectors.memory.store import Store
from dataflow_assets.contracts import (
    Checkpoint,
    Receipt,
    Run,
    SourceSession,
    Span,
    Target,
    refuse_shared,
)
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.sink.session import StateChange, TransactionalSession
from dataflow_assets.sdk.sink.state import BranchState

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


class MemorySinkSession(TransactionalSession):
    """The state is a row of the store, changed in the transaction that changes the rows."""

    def __init__(self, sink: MemorySinkOptions, target: Target, run: Run) -> None:
        self._table = sink.table
        self._store = Store(sink.store)
        self._store.create()
        if sink.exists and self.identity is None:
            self._store.identify(sink.table, "1")
        super().__init__(sink, target, run)

    @property
    @override
    def identity(self) -> str | None:
        return self._store.identity(self._table)

    @override
    def schema(self) -> pa.Schema | None:
        return SCHEMA if self.identity else None

    @override
    def create(self, sample: pa.Schema) -> None:
        if not set(sample.names) <= set(SCHEMA.names):
            raise PermanentError(f"the in-memory table has the columns {SCHEMA.names} only")
        self._store.identify(self._table, "1")

    @override
    def holds_rows(self) -> bool:
        return bool(self._store.query("select 1 from rows where name = ?", self._table))

    @override
    def read(self) -> BranchState | None:
        with self._store.transaction() as connection:
            return load(connection, self._target)

    @override
    def record(self, step: StateChange) -> BranchState:
        with self._store.transaction() as connection:
            return move(connection, self._target, step)

    @override
    def fence(self, step: StateChange, *, empty: bool = False) -> BranchState:
        with self._store.transaction() as connection:
            state = move(connection, self._target, step)
            if empty:
                others = other_flows(connection, self._target, state.checkpoint.target)
                refuse_shared(self._target, self._sink.address(), others)
                connection.execute("delete from rows where name = ?", [self._table])
        return state

    @override
    def publish(self, step: StateChange, receipts: Sequence[Receipt]) -> BranchState:
        with self._store.transaction() as connection:
            for text in (text for receipt in receipts for text in receipt.staged):
                insert(connection, self._table, decode_json(text, MemoryStaged))
            return move(connection, self._target, step)

    @override
    def begin(self, span: Span) -> Span:
        failpoints.reach("memory.begin")
        return super().begin(span)

    @override
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        failpoints.reach("memory.finish")
        checkpoint = super().finish(span, receipts, source)
        failpoints.reach("memory.finished")
        return checkpoint
