"""The driver's side of the sink: one epoch of one branch, one statement for each micro-batch."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.sink.checkpoint_store import TrinoCheckpoints
from dataflow_assets.connectors.trino.sink.suspects import Suspects
from dataflow_assets.connectors.trino.sink.target import TrinoSinkTarget
from dataflow_assets.connectors.trino.sink.writer import TrinoTicket
from dataflow_assets.connectors.trino.table.checkpoint_upkeep import keep_small
from dataflow_assets.contracts import (
    Checkpoint,
    Receipt,
    Run,
    SourceSession,
    Span,
    Target,
    Ticket,
)
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sink.session import TransactionalSession

KEPT_EVERY = 8  # commits, after which the table of checkpoints is looked at


class TrinoSinkSession(TransactionalSession):
    """Narrows a refused statement down to its record, and looks after what statements leave."""

    _sink: TrinoSinkOptions
    _table: TrinoSinkTarget
    _store: TrinoCheckpoints

    def __init__(self, sink: TrinoSinkOptions, target: Target, run: Run) -> None:
        self._commits = 0
        self._suspects = Suspects()
        with translate_errors(f"opening {sink.address()}"):
            client = TrinoClient(sink, "dataflow-assets")
        table = TrinoSinkTarget(client, sink, target.flow)
        store = TrinoCheckpoints(sink, target, run, table)
        try:
            with translate_errors(f"opening {sink.address()}"):
                table.find()
                store.checkpoints.create()
            super().__init__(sink, target, run, table, store)
            with translate_errors(f"opening {sink.address()}"):
                store.stage.drop_older(self.checkpoint.epoch)
            keep_small(sink, store.checkpoints.place, target.id)
            table.warn()
        except BaseException:
            store.close()
            raise

    @override
    def begin(self, span: Span) -> Span:
        if self._store.unknown is not None:
            raise self._store.unknown
        return super().begin(span)

    @override
    def ticket(self) -> Ticket:
        ticket, table, stage = super().ticket(), self._table.found, self._store.stage
        columns = table.columns if table else ()
        stage_at, bounds = stage.begin(ticket.epoch), self._suspects.bounds
        return TrinoTicket(**vars(ticket), columns=columns, stage=stage_at, bounds=bounds)

    @override
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        publish = super().finish
        mine = [one for one in receipts if one.branch == self._target.branch]
        self._suspects.store(span, mine, lambda part, theirs: publish(part, theirs, source))
        self._tidy()
        return self.checkpoint

    def _tidy(self) -> None:
        """After each commit the stage of the span is dropped, where there is one.

        Now and then it looks after stages of failed tasks and checkpoints.
        """
        self._commits += 1
        if self._commits % KEPT_EVERY == 0:
            self._store.stage.drop_older(self.checkpoint.epoch)
            keep_small(self._sink, self._store.checkpoints.place, self._target.id)
        else:
            self._store.stage.drop()
