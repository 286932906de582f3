"""The state of a branch in its row of the table of checkpoints, and the statements that ask for it.

A statement that was sent may have stored rows although nobody has seen its end: what an earlier
driver has left open so is decided when a session opens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.connectors.trino.errors import TrinoFailure
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.sink.empty_table import TrinoEmptying
from dataflow_assets.connectors.trino.sink.publish import TrinoPublisher, records_of
from dataflow_assets.connectors.trino.sink.recovery import (
    UnknownEnd,
    ends_of,
    have_committed,
    unknown_end,
    unknown_position,
)
from dataflow_assets.connectors.trino.sink.span_stage import SpanStage
from dataflow_assets.connectors.trino.sink.suspects import RefusedSpan
from dataflow_assets.connectors.trino.sink.target import TrinoSinkTarget
from dataflow_assets.connectors.trino.table import stage
from dataflow_assets.connectors.trino.table.checkpoint_table import GONE, TrinoCheckpointTable
from dataflow_assets.connectors.trino.table.document import DECIDED, MOST_WHOLE, TrinoStored
from dataflow_assets.contracts import Receipt, Run, Target
from dataflow_assets.failpoints import reach
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.server_failure import Fault, translate_errors
from dataflow_assets.sdk.sink.checkpoint_store import CheckpointStore, StateChange
from dataflow_assets.sdk.sink.state import BranchState, check_owner

log = logging.getLogger(__name__)

_REPEATED = (
    "flow %s: whether query %s has stored its rows in %s cannot be known any more: they are stored "
    "by their keys again, over what others wrote there since"
)


class TrinoCheckpoints(CheckpointStore):
    """The state is a row of a table, which the statement that stores rows asks whether it may."""

    system: ClassVar = "trino"

    def __init__(
        self, sink: TrinoSinkOptions, target: Target, run: Run, table: TrinoSinkTarget
    ) -> None:
        self._sink, self._target, self._run, self._table = sink, target, run, table
        self.client = table.client
        self.checkpoints = TrinoCheckpointTable(self.client, sink, target)
        self.stage = SpanStage(self.client, table.place, target.id)
        self.unknown: UnknownEnd | None = None

    @override
    def load(self, receipts: Sequence[Receipt] = ()) -> BranchState | None:
        with translate_errors(f"reading the checkpoint of {self._sink.address()}"):
            found = self.checkpoints.load()
        return found.state if found else None

    @override
    def change(self, step: StateChange) -> BranchState:
        with translate_errors(f"storing the checkpoint of {self._sink.address()}"):
            return self.checkpoints.move(step).state

    @override
    def fence(self, step: StateChange, *, empty: bool = False) -> BranchState:
        """A statement that has not begun by now fails; those that have are waited for."""
        with translate_errors(f"storing the checkpoint of {self._sink.address()}"):
            if empty and self._table.found is not None:
                self._emptying().check()
            changes = {"emptying": True} if empty else {}
            stored = self._settle(self.checkpoints.move(step, **changes))
            if stored.document.emptying:
                stored = self._empty_table(stored)
        return stored.state

    @override
    def sharing(self) -> Mapping[str, str]:
        with translate_errors(f"reading the checkpoints beside {self._sink.address()}"):
            return self.checkpoints.others(self._table.identity)

    @override
    def publish(self, step: StateChange, receipts: Sequence[Receipt]) -> BranchState:
        texts = [text for receipt in receipts for text in receipt.staged]
        staged = [self.stage.without_stored(decode_json(text, stage.TrinoStaged)) for text in texts]
        reach("trino.before-commit")
        if not any(one.rows for one in staged):
            return self.change(step)
        table = self._table
        assert table.found is not None  # noqa: S101 - tasks have written for it
        publisher = TrinoPublisher(
            self.client, self._sink, self._target.flow, self.checkpoints, table.found, table.able
        )
        what = f"writing {records_of(receipts)} to {self._sink.address()}"
        with translate_errors(what):
            source = publisher.source(self.stage.place, staged)
            self.stage.note(source.attempts)
            try:
                state = publisher.publish(step, source, sum(one.rows for one in staged))
            except TrinoFailure as failure:
                if failure.fault is Fault.OUTSIDE or GONE in failure.reason:
                    raise
                self.checkpoints.move(partial(_keep, step), pending=None)
                raise RefusedSpan(failure, what) from None
        reach("trino.committed")
        return state

    @override
    def close(self) -> None:
        self.client.close()

    def _settle(self, stored: TrinoStored) -> TrinoStored:
        """Decides what an earlier driver has left open: its rows are there, or never will be.

        Where nobody can tell, `begin` says so for a flow that appends, until a restart makes
        nothing of what was read before. Upserts go on as if that statement had not committed: a
        MERGE by the key changes nothing when it is repeated.

        Raises TakenOver where another driver has come while the end of a query was waited for.
        """
        flow, asked = self._target.flow, stored.doubts
        appends = not self._sink.upsert_mode
        committed = have_committed(
            self.client, self._table.found, self._table.able, asked, flow, prove=appends
        )
        ends = ends_of(asked, committed, stored.document.checkpoint)
        self.unknown = None
        if ends.stored is not None:
            return self._continue(stored, ends.stored.query)
        if ends.unknown and appends:
            query, known = ends.unknown[0].query, stored.document.checkpoint
            after = self.checkpoints.after(stored.document, query)
            self.unknown = unknown_end(self._table.place, query, known, after, flow)
            return stored
        for doubt in ends.unknown:
            log.warning(_REPEATED, flow, doubt.query, self._table.place)
        return self._keep_doubts(stored, ends.failed)

    def _continue(self, stored: TrinoStored, query: str) -> TrinoStored:
        """From where a statement has come whose rows are there."""
        known, after = stored.document.checkpoint, self.checkpoints.after(stored.document, query)
        if after is not None:
            now = replace(after, epoch=known.epoch, run=known.run)
            return self._move_checkpoint(stored, lambda _: BranchState(now), **DECIDED)
        # Raises TakenOver, if the driver that has taken over has removed the row.
        stored = self._move_checkpoint(stored, _as_it_is)
        self.unknown = unknown_position(self._table.place, query, self._target.flow)
        return stored

    def _keep_doubts(self, stored: TrinoStored, failed: Sequence[str]) -> TrinoStored:
        document = stored.document
        able = self._table.able.exactly_once and not self._sink.upsert_mode
        kept = frozenset(failed if able else ())
        whole = tuple(one for one in document.whole if one.query in kept)
        older = (one.doubt for one in whole[MOST_WHOLE:])
        aside = (*older, *(one for one in document.aside if one.query in kept))
        changes = {**DECIDED, "doubts": whole[:MOST_WHOLE], "aside": aside}
        if not document.pending and (whole, aside) == (document.doubts, document.aside):
            return stored
        return self._move_checkpoint(stored, _as_it_is, **changes)

    def _empty_table(self, stored: TrinoStored) -> TrinoStored:
        """Takes the rows out while the checkpoint's row is this session's."""
        reach("trino.emptying")
        if self._table.found is not None:
            self._emptying().delete(stored.stamp)
        return self._move_checkpoint(stored, _as_it_is, emptying=False)

    def _emptying(self) -> TrinoEmptying:
        return TrinoEmptying(self.client, self._target.flow, self._table.place, self.checkpoints)

    def _move_checkpoint(
        self, stored: TrinoStored, change: Callable[[BranchState], BranchState], **changes: object
    ) -> TrinoStored:
        """Stores a change under the epoch of what was stored; a session that opens has no other.

        Raises TakenOver where another driver has the row by now.
        """
        epoch, place = stored.document.checkpoint.epoch, self._sink.address()
        return self.checkpoints.move(
            lambda found: change(check_owner(self._target.flow, found, epoch, self._run, place)),
            **changes,
        )


def _keep(step: StateChange, found: BranchState | None) -> BranchState:
    """Returns what is stored, which the step finds to be its session's."""
    step(found)
    assert found is not None  # noqa: S101 - else the step has raised
    return found


def _as_it_is(found: BranchState) -> BranchState:
    return found
