"""The driver's side of the sinks: the table, and where the state of a branch is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.memory.options import MemorySinkOptions
from dataflow_assets.connectors.memory.sink.checkpoint import load, move, other_flows
from dataflow_assets.connectors.memory.sink.writer import MemoryStaged, insert
from dataflow_assets.connectors.memory.store import Store
from dataflow_assets.contracts import Receipt, Target, TargetTable, refuse_shared
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.sink.checkpoint_store import CheckpointStore, StateChange
from dataflow_assets.sdk.sink.state import BranchState

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


class MemoryTable(TargetTable):
    """A table of the store, whose columns never change."""

    def __init__(self, sink: MemorySinkOptions) -> None:
        self._name, self._store = sink.table, Store(sink.store)
        self._store.create()
        if sink.exists and self.identity is None:
            self._store.identify(self._name, "1")

    @property
    @override
    def identity(self) -> str | None:
        return self._store.identity(self._name)

    @override
    def schema(self) -> pa.Schema | None:
        return SCHEMA if self.identity else None

    @override
    def create(self, sample: pa.Schema) -> None:
        if not set(sample.names) <= set(SCHEMA.names):
            raise PermanentError(f"the in-memory table has the columns {SCHEMA.names} only")
        self._store.identify(self._name, "1")

    @override
    def holds_rows(self) -> bool:
        return bool(self._store.query("select 1 from rows where name = ?", self._name))


class MemoryCheckpoints(CheckpointStore):
    """The state is a row of the store, changed in the transaction that changes the rows."""

    system: ClassVar = "memory"

    def __init__(self, sink: MemorySinkOptions, target: Target) -> None:
        self._sink, self._target, self._store = sink, target, Store(sink.store)
        self._store.create()

    @override
    def load(self, receipts: Sequence[Receipt] = ()) -> BranchState | None:
        with self._store.transaction() as connection:
            return load(connection, self._target)

    @override
    def change(self, step: StateChange) -> BranchState:
        with self._store.transaction() as connection:
            return move(connection, self._target, step)

    @override
    def fence(self, step: StateChange, *, empty: bool = False) -> BranchState:
        with self._store.transaction() as connection:
            state = move(connection, self._target, step)
            if empty:
                others = other_flows(connection, self._target, state.checkpoint.target)
                refuse_shared(self._target, self._sink.address(), others)
                connection.execute("delete from rows where name = ?", [self._sink.table])
        return state

    @override
    def sharing(self) -> Mapping[str, str]:
        identity = self._store.identity(self._sink.table)
        with self._store.transaction() as connection:
            return other_flows(connection, self._target, identity)


class MemorySpanCheckpoints(MemoryCheckpoints):
    """Stores the rows, too: they are in the receipts of the tasks."""

    @override
    def publish(self, step: StateChange, receipts: Sequence[Receipt]) -> BranchState:
        with self._store.transaction() as connection:
            for text in (text for receipt in receipts for text in receipt.staged):
                insert(connection, self._sink.table, decode_json(text, MemoryStaged))
            return move(connection, self._target, step)
