"""The driver's side of a pipeline's table: a session that also tells people what it does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from typing_extensions import override

from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.sink.session import PostgresqlSinkSession
from dataflow_assets.contracts import Checkpoint, Receipt, Run, SourceSession, Span, Target
from dataflow_assets.languages.pipelines.postgresql.monitoring import PostgresqlMonitor
from dataflow_assets.languages.pipelines.views import kind_and_message, noting
from dataflow_assets.languages.promises import NotesEnd


class PostgresqlPipelineSession(PostgresqlSinkSession, NotesEnd):
    """Beside each change of the checkpoint, and behind it, what is done is noted for the views.

    A note that is lost in a crash is made up for when the pipeline is opened again.
    """

    def __init__(
        self, sink: PostgresqlSinkOptions, name: str, config: str, target: Target, run: Run
    ) -> None:
        """`name`: of the pipeline. `config`: its settings as JSON, without secrets."""
        super().__init__(sink, target, run)
        self._monitor = PostgresqlMonitor(sink.place()[0], target.flow, target.branch)
        unfinished = bool(self._state.intent)
        with self._noting(), self._links.transaction("noting the state of") as link:
            self._monitor.note_open(link, name, config, self.checkpoint.epoch)
            self._monitor.settle(link, self.checkpoint.totals, unfinished=unfinished)

    @override
    def begin(self, span: Span) -> Span:
        start = super().begin(span)
        if not start.empty:
            with self._noting(), self._links.transaction("noting a batch of") as link:
                self._monitor.note_begin(link, self.checkpoint.totals)
        return start

    @override
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        checkpoint = super().finish(span, receipts, source)
        with self._noting(), self._links.transaction("noting a batch of") as link:
            self._monitor.note_success(link, checkpoint.totals)
        return checkpoint

    @override
    def note_end(self, error: BaseException | None) -> None:
        with self._noting(), self._links.transaction("noting the state of") as link:
            self._monitor.note_end(link, self.checkpoint.epoch, kind_and_message(error))

    def _noting(self) -> AbstractContextManager[None]:
        return noting(self._sink.address(), self._target.flow)
