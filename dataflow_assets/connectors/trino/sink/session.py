"""The driver's side of the sink: one epoch of one branch, one statement for each micro-batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.errors import TrinoFailure
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.sink.empty_table import TrinoEmptying, holds_rows
from dataflow_assets.connectors.trino.sink.publish import TrinoPublisher, records_of
from dataflow_assets.connectors.trino.sink.recovery import (
    UnknownEnd,
    ends_of,
    have_committed,
    unknown,
    unknown_position,
)
from dataflow_assets.connectors.trino.sink.span_stage import SpanStage
from dataflow_assets.connectors.trino.sink.suspects import RefusedSpan, Suspects
from dataflow_assets.connectors.trino.sink.writer import TrinoTicket
from dataflow_assets.connectors.trino.table import capabilities, create_table, stage
from dataflow_assets.connectors.trino.table.capabilities import Capabilities
from dataflow_assets.connectors.trino.table.checkpoint_table import GONE, TrinoCheckpointTable
from dataflow_assets.connectors.trino.table.checkpoint_upkeep import keep_small
from dataflow_assets.connectors.trino.table.document import DECIDED, MOST_WHOLE, TrinoStored
from dataflow_assets.connectors.trino.table.table import TrinoPlace, TrinoTable, find
from dataflow_assets.contracts import (
    Checkpoint,
    Receipt,
    Run,
    SourceSession,
    Span,
    Target,
    Ticket,
    refuse_shared,
)
from dataflow_assets.failpoints import reach
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.server_failure import Fault, translate_errors
from dataflow_assets.sdk.sink.session import StateChange, TransactionalSession
from dataflow_assets.sdk.sink.state import BranchState, check_owner

log = logging.getLogger(__name__)

KEPT_EVERY = 8  # commits, after which the table of checkpoints is looked at
_REPEATED = (
    "flow %s: whether query %s has stored its rows in %s cannot be known any more: they are stored "
    "by their keys again, over what others wrote there since"
)


class TrinoSinkSession(TransactionalSession):
    """The state is a row of a table, which the statement that stores rows asks whether it may."""

    _sink: TrinoSinkOptions

    def __init__(self, sink: TrinoSinkOptions, target: Target, run: Run) -> None:
        schema, name = sink.place()
        self._place = TrinoPlace(sink.catalog or "", schema, name)
        self._table: TrinoTable | None = None
        self._able = Capabilities(snapshots=False, merge=False)
        self._commits = 0
        self._unknown: UnknownEnd | None = None
        self._suspects = Suspects()
        with translate_errors(f"opening {sink.address()}"):
            self._client = TrinoClient(sink, "dataflow-assets")
        self._stage = SpanStage(self._client, self._place, target.id)
        self._checkpoints = TrinoCheckpointTable(self._client, sink, target)
        try:
            with translate_errors(f"opening {sink.address()}"):
                self._find(sink)
                self._checkpoints.create()
            super().__init__(sink, target, run)
            with translate_errors(f"opening {sink.address()}"):
                self._stage.drop_older(self.checkpoint.epoch)
            keep_small(sink, self._checkpoints.place, target.id)
            self._tell()
        except BaseException:
            self.close()
            raise

    @property
    @override
    def identity(self) -> str | None:
        return self._table.identity if self._table else None

    @override
    def schema(self) -> pa.Schema | None:
        # Read once: a table altered under a run shows as an error, and the next run reads anew.
        return self._table.schema(self._sink.key) if self._table else None

    @override
    def create(self, sample: pa.Schema) -> None:
        with translate_errors(f"creating {self._sink.address()}"):
            create_table.create(self._client, self._sink, self._place, sample)
            self._find(self._sink)
        self._tell()
        self._state = self.record(self._owning(lambda found: found.adopt(self.identity)))

    @override
    def holds_rows(self) -> bool:
        with translate_errors(f"looking into {self._sink.address()}"):
            return self._table is not None and holds_rows(self._client, self._place)

    @override
    def read(self) -> BranchState | None:
        with translate_errors(f"reading the checkpoint of {self._sink.address()}"):
            found = self._checkpoints.load()
        return found.state if found else None

    @override
    def record(self, step: StateChange) -> BranchState:
        with translate_errors(f"storing the checkpoint of {self._sink.address()}"):
            return self._checkpoints.move(step).state

    @override
    def fence(self, step: StateChange, *, empty: bool = False) -> BranchState:
        """A statement that has not begun by now fails; those that have are waited for."""
        with translate_errors(f"storing the checkpoint of {self._sink.address()}"):
            if empty:
                others = self._checkpoints.others(self.identity)
                refuse_shared(self._target, self._sink.address(), others)
                if self._table is not None:
                    self._emptying().check()
            changes = {"emptying": True} if empty else {}
            stored = self._settle(self._checkpoints.move(step, **changes))
            if stored.document.emptying:
                stored = self._empty_table(stored)
        return stored.state

    @override
    def begin(self, span: Span) -> Span:
        if self._unknown is not None:
            raise self._unknown
        begun = super().begin(span)
        reach("trino.begin")
        return begun

    @override
    def ticket(self) -> Ticket:
        ticket, table = super().ticket(), self._table
        columns = table.columns if table else ()
        stage_at, bounds = self._stage.begin(ticket.epoch), self._suspects.bounds
        return TrinoTicket(**vars(ticket), columns=columns, stage=stage_at, bounds=bounds)

    @override
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        publish = super().finish
        mine = [one for one in receipts if one.branch == self._target.branch]
        self._suspects.store(span, mine, lambda part, theirs: publish(part, theirs, source))
        self._tidy()
        return self.checkpoint

    @override
    def publish(self, step: StateChange, receipts: Sequence[Receipt]) -> BranchState:
        texts = [text for receipt in receipts for text in receipt.staged]
        staged = [
            self._stage.without_stored(decode_json(text, stage.TrinoStaged)) for text in texts
        ]
        reach("trino.before-commit")
        if not any(one.rows for one in staged):
            return self.record(step)
        assert self._table is not None  # noqa: S101 - tasks have written for it
        publisher = TrinoPublisher(
            self._client, self._sink, self._target.flow, self._checkpoints, self._table, self._able
        )
        what = f"writing {records_of(receipts)} to {self._sink.address()}"
        with translate_errors(what):
            source = publisher.source(self._stage.place, staged)
            self._stage.note(source.attempts)
            try:
                state = publisher.publish(step, source, sum(one.rows for one in staged))
            except TrinoFailure as failure:
                if failure.fault is Fault.OUTSIDE or GONE in failure.reason:
                    raise
                self._checkpoints.move(self._owning(_as_it_is), pending=None)
                raise RefusedSpan(failure, what) from None
        reach("trino.committed")
        return state

    @override
    def close(self) -> None:
        self._client.close()

    def _find(self, sink: TrinoSinkOptions) -> None:
        self._table = find(self._client, self._place)
        if self._table is None:
            if not sink.auto_create_table:
                raise sink.no_table()
            return
        self._able = capabilities.ask(self._client, self._table, sink.key)
        if sink.upsert_mode:
            capabilities.check_upsert(self._table, self._able, sink.key)
            capabilities.check_mark(self._table, sink.soft)

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
            self._client, self._table, self._able, asked, flow, prove=appends
        )
        ends = ends_of(asked, committed, stored.document.checkpoint)
        self._unknown = None
        if ends.stored is not None:
            return self._continue(stored, ends.stored.query)
        if ends.unknown and appends:
            query, known = ends.unknown[0].query, stored.document.checkpoint
            after = self._checkpoints.after(stored.document, query)
            self._unknown = unknown(self._place, query, known, after, flow)
            return stored
        for doubt in ends.unknown:
            log.warning(_REPEATED, flow, doubt.query, self._place)
        return self._keep_doubts(stored, ends.failed)

    def _continue(self, stored: TrinoStored, query: str) -> TrinoStored:
        """From where a statement has come whose rows are there."""
        known, after = stored.document.checkpoint, self._checkpoints.after(stored.document, query)
        if after is not None:
            now = replace(after, epoch=known.epoch, run=known.run)
            return self._move_checkpoint(stored, partial(_become, now), **DECIDED)
        # Raises TakenOver, if the driver that has taken over has removed the row.
        stored = self._move_checkpoint(stored, _as_it_is)
        self._unknown = unknown_position(self._place, query, self._target.flow)
        return stored

    def _keep_doubts(self, stored: TrinoStored, failed: Sequence[str]) -> TrinoStored:
        document = stored.document
        able = self._able.exactly_once and not self._sink.upsert_mode
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
        if self._table is not None:
            self._emptying().delete(stored.stamp)
        return self._move_checkpoint(stored, _as_it_is, emptying=False)

    def _emptying(self) -> TrinoEmptying:
        return TrinoEmptying(self._client, self._target.flow, self._place, self._checkpoints)

    def _move_checkpoint(
        self, stored: TrinoStored, change: Callable[[BranchState], BranchState], **changes: object
    ) -> TrinoStored:
        """Stores a change under the epoch of what was stored; a session that opens has no other.

        Raises TakenOver where another driver has the row by now.
        """
        epoch, place = stored.document.checkpoint.epoch, self._sink.address()
        return self._checkpoints.move(
            lambda found: change(check_owner(self._target.flow, found, epoch, self._run, place)),
            **changes,
        )

    def _tidy(self) -> None:
        """After each commit the stage of the span is dropped, where there is one.

        Now and then it looks after stages of failed tasks and checkpoints.
        """
        self._commits += 1
        if self._commits % KEPT_EVERY == 0:
            self._stage.drop_older(self.checkpoint.epoch)
            keep_small(self._sink, self._checkpoints.place, self._target.id)
        else:
            self._stage.drop()

    def _tell(self) -> None:
        if self._table is not None and not self._sink.upsert_mode:
            capabilities.warn(self._table, self._able, self._target.flow)


def _become(checkpoint: Checkpoint, _: BranchState) -> BranchState:
    return BranchState(checkpoint)


def _as_it_is(found: BranchState) -> BranchState:
    return found
