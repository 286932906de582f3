"""One branch's rows in the checkpoint log, recorded under one epoch."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, Protocol

from dataflow_assets.connectors.clickhouse.client import Client, connect
from dataflow_assets.connectors.clickhouse.options import ClickhouseSinkOptions
from dataflow_assets.connectors.clickhouse.table.checkpoint_log import (
    CHUNK,
    DONE,
    HEAD,
    WHOLE,
    Border,
    ClickhouseDone,
    ClickhouseEntry,
    ClickhouseHead,
    ClickhouseState,
    dump,
    fold,
)
from dataflow_assets.connectors.clickhouse.table.checkpoint_table import read_together
from dataflow_assets.contracts import Checkpoint, Run, Target
from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from dataflow_assets.sdk.sink.decide import checkpoint_removed, taken_over
from dataflow_assets.sdk.sink.peek import peek_by_schema
from dataflow_assets.sdk.sink.state import BranchState

_TRIES = 50


class CheckpointLog(Protocol):
    """The rows of one branch, wherever they are kept."""

    blocks: int
    """Blocks that the target had been given when the log was last read."""

    def read(self, partition: str | None = None) -> Sequence[ClickhouseEntry]:
        """All rows, the oldest first; with a partition: all heads, and its own rows."""

    def record(self, entry: ClickhouseEntry) -> None:
        """Adds the row unless there is one of its key; durable when it returns."""


class BranchCheckpoint:
    """What a driver or a task reads and records."""

    def __init__(self, log: CheckpointLog, target: Target, epoch: int = 0) -> None:
        self.epoch = epoch
        self._log = log
        self._target = target
        self._n = 0

    def take(self, run: Run) -> ClickhouseState:
        """Takes a new epoch: the number of the first who has recorded it."""
        state = fold(self._log.read())
        for _ in range(_TRIES):
            base, self.epoch, self._n = state.head.place, state.head.epoch + 1, 0
            writer = self._record_head(replace(state.snapshot(), run=run.id, host=run.place))
            rows = self._log.read()
            state = fold(rows)
            if state.head.place != (self.epoch, 0) or state.writer != writer:
                continue  # another run was first
            before = fold(row for row in rows if row.kind != HEAD or row.epoch < self.epoch)
            if before.head.place == base:
                return state
            # Our head did not know what its predecessor did last.
            return self.head(replace(before.snapshot(), run=run.id, host=run.place))
        raise TransientError(f"flow {self._target.flow}: other runs took every epoch that was free")

    @property
    def flow(self) -> str:
        return self._target.flow

    def read(self, partition: str | None = None) -> ClickhouseState:
        """The state, of one partition or of all. Raises TakenOver where our epoch is over."""
        state = fold(self._log.read(partition))
        if state.head.epoch != self.epoch:
            raise self._over(state.head)
        return state

    def head(self, head: ClickhouseHead) -> ClickhouseState:
        """Records what the driver has decided; nobody else has its epoch."""
        self._n += 1
        self._record_head(head)
        return self.read()

    def generation(self) -> str:
        """The name of the generation that begins with the next head."""
        return f"{self.epoch}.{self._n + 1}"

    def propose(self, state: ClickhouseState, partition: str, border: Border) -> ClickhouseState:
        """Records where the next chunk ends; what stands then is in the state."""
        self._record(CHUNK, state, partition, border)
        return self.read(partition)

    def whole(self, state: ClickhouseState, partition: str, seen: int) -> None:
        """Records that a pending chunk ends at `seen`: all there is was read."""
        self._record(WHOLE, state, partition, seen)

    def record_done(self, state: ClickhouseState, partition: str, done: ClickhouseDone) -> None:
        """Records that the rows of the pending chunk are in."""
        self._record(DONE, state, partition, done)

    def _record_head(self, head: ClickhouseHead) -> str:
        head = replace(head, epoch=self.epoch, n=self._n)
        entry = ClickhouseEntry(HEAD, dump(head), uuid.uuid4().hex, head.epoch, head.n)
        self._log.record(entry)
        return entry.writer

    def _record(self, kind: str, state: ClickhouseState, partition: str, value: Any) -> None:
        where = (state.head.generation, partition, state.after(partition))
        writer = uuid.uuid4().hex
        self._log.record(ClickhouseEntry(kind, dump(value), writer, self.epoch, 0, *where))

    def _over(self, head: ClickhouseHead) -> PermanentError:
        if head.epoch < self.epoch:
            return checkpoint_removed(self._target.flow, "table dataflow_ledger")
        return taken_over(self._target.flow, f"run {head.run} on host {head.host}")


def peek_together(
    asked: Sequence[tuple[ClickhouseSinkOptions, Target]],
) -> list[Checkpoint | DataflowError | None]:
    """The stored checkpoints of branches on one server; no epoch is taken."""
    return peek_by_schema(asked, _connect(*asked[0]), _read_states)


@contextmanager
def _connect(sink: ClickhouseSinkOptions, target: Target) -> Iterator[Client]:
    with closing(connect(sink.dsn(), f"dataflow {target.flow}")) as client:
        yield client


def _read_states(
    client: Client, database: str, targets: Sequence[Target]
) -> dict[str, BranchState]:
    found = read_together(client, database, targets)
    return {name: fold(entries).branch for name, entries in found.items()}
