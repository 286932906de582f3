"""What a finished pass has staged becomes one statement, and the checkpoint of its end."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from dataflow_assets.connectors.trino.client import Statement, TrinoClient
from dataflow_assets.connectors.trino.errors import CONFLICT, TrinoFailure
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.table import snapshots, stage, statement
from dataflow_assets.connectors.trino.table.capabilities import Capabilities
from dataflow_assets.connectors.trino.table.checkpoint_table import TrinoCheckpointTable
from dataflow_assets.connectors.trino.table.document import DECIDED, TrinoPending
from dataflow_assets.connectors.trino.table.table import TrinoPlace, TrinoTable
from dataflow_assets.contracts import Receipt
from dataflow_assets.errors import TransientError
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.sink.checkpoint_store import StateChange
from dataflow_assets.sdk.sink.state import BranchState

log = logging.getLogger(__name__)

WRITES = 5  # of one span, each on the table that another writer has left
_QUERY = "20200101_000000_00000_aaaaa"  # as long as each id of a query


@dataclass(frozen=True)
class TrinoPublisher:
    """Writes the rows of spans into one table, on the driver. Methods raise Failure."""

    client: TrinoClient
    sink: TrinoSinkOptions
    flow: str
    checkpoints: TrinoCheckpointTable
    table: TrinoTable
    able: Capabilities

    def source(
        self, staged_at: TrinoPlace, staged: Sequence[stage.TrinoStaged]
    ) -> statement.Source:
        """The rows of a span, gathered in one place."""
        longest = self.sink.max_statement_length
        left = longest - self._without_rows(staged_at)
        inline, attempts = stage.gather(self.client, staged_at, staged, longest, left)
        return statement.Source(self.table.columns, inline, staged_at, attempts)

    def _without_rows(self, staged_at: TrinoPlace) -> int:
        """Characters of the statement but for the rows, which name each column several times.

        Each try of the statement may ask for the commit of one more query.
        """
        found = self.checkpoints.latest()
        doubts = [each.query for each in (found.doubts if found else ())]
        empty = statement.Source(self.table.columns, "", staged_at)
        sql = self._sql(empty, [*doubts, *[_QUERY] * WRITES], uuid.uuid4().hex)
        return stage.length_of(sql)

    def publish(self, step: StateChange, source: statement.Source, rows: int) -> BranchState:
        """Writes the rows of a span, and stores what the step makes of the checkpoint.

        Raises TakenOver where another run has the branch by now, and TransientError where other
        writers change the table faster than rows can be written to it.
        """
        for number in range(WRITES):
            time.sleep(random.random() * number)  # noqa: S311 - writers that meet part again
            try:
                return self._write(step, source, rows)
            except TrinoFailure as failure:
                if failure.name != CONFLICT:
                    raise
                log.info("flow %s: %s: once more", self.flow, failure.reason)
        raise TransientError(
            f"{self.table.place}: other writers change the table faster than rows can be written "
            f"to it ({WRITES} times)"
        )

    def _write(self, step: StateChange, source: statement.Source, rows: int) -> BranchState:
        found = self.checkpoints.latest()
        state, stamp = step(found.state if found else None), uuid.uuid4().hex
        assert found is not None  # noqa: S101 - else the step has raised
        # A conflict may be the lost answer of the catalog: that query may have committed.
        earlier = [each.query for each in found.doubts]
        prepared = self.client.prepare(self._sql(source, earlier, stamp))
        base = snapshots.head(self.client, self.table) if self.able.snapshots else None
        pending = TrinoPending(prepared.id, state.checkpoint, base)
        doubts = found.document.whole
        document = msgspec.structs.replace(found.document, pending=pending, doubts=doubts)
        stored = self.checkpoints.swap(found, document, stamp)
        if stored is None:
            raise self._change_error(step)
        reach("trino.recorded")
        self._run(prepared, step, rows)
        reach("trino.written")
        done = msgspec.structs.replace(
            document,
            checkpoint=state.checkpoint,
            intent=state.intent,
            **DECIDED,
        )
        if self.checkpoints.swap(stored, done) is None:
            # Raises TakenOver, if that is why.
            return self.checkpoints.move(step, **DECIDED).state
        return state

    def _run(self, prepared: Statement, step: StateChange, rows: int) -> None:
        """Raises TakenOver where the statement has failed, or written less, because of that."""
        try:
            written = prepared.run()
        except TrinoFailure as failure:
            if failure.name:
                self._check_owned(step)
            raise
        if not self.sink.upsert_mode and written != rows:
            self._check_owned(step)
            raise TransientError(f"{self.table.place}: {written} of {rows} rows were written")

    def _change_error(self, step: StateChange) -> TransientError:
        self._check_owned(step)
        return TransientError(f"the checkpoint of {self.flow} was changed meanwhile")

    def _check_owned(self, step: StateChange) -> None:
        """Raises TakenOver: with any other error an older driver would take the branch back."""
        found = self.checkpoints.load()
        step(found.state if found else None)

    def _sql(self, source: statement.Source, earlier: Sequence[str], stamp: str) -> str:
        condition = self.checkpoints.must_write(stamp)
        if self.sink.upsert_mode:
            return statement.merge(self.table, source, condition, self.sink.key, self.sink.soft)
        if earlier:
            condition += f" AND {snapshots.unless_committed(self.table, earlier)}"
        return statement.insert(self.table, source, condition, guarded=self.able.exactly_once)


def records_of(receipts: Sequence[Receipt]) -> str:
    """Returns what a statement writes, for people: all of it is written, or nothing."""
    found = []
    for one in receipts:
        before = f" before offset {one.position}" if isinstance(one.position, int) else ""
        found.append(f"partition {one.partition}{before}")
    return f"the records of {', '.join(found)}"
