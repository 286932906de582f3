"""The driver's side of a pipeline's table: a session that also tells people what it does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from typing_extensions import override

from dataflow_assets.connectors.clickhouse.options import ClickhouseSinkOptions
from dataflow_assets.connectors.clickhouse.rejected.error_sink import ClickhouseRejected
from dataflow_assets.connectors.clickhouse.sink.session import ClickhouseSinkSession
from dataflow_assets.contracts import Checkpoint, Receipt, Run, SourceSession, Span, Target
from dataflow_assets.languages.pipelines.clickhouse import monitoring, views
from dataflow_assets.languages.pipelines.clickhouse.monitoring import ClickhouseMonitor
from dataflow_assets.languages.pipelines.views import kind_and_message, noting
from dataflow_assets.languages.promises import NotesEnd


class ClickhousePipelineSession(ClickhouseSinkSession, NotesEnd):
    """Notes for the views, after each change of the checkpoint, what was done.

    A note that is lost in a crash is made up for when the pipeline is opened again.
    """

    def __init__(
        self, sink: ClickhouseSinkOptions, name: str, config: str, target: Target, run: Run
    ) -> None:
        """`name`: of the pipeline. `config`: its settings as JSON, without secrets."""
        super().__init__(sink, target, run)
        place = self._database, self._name
        self._monitor = ClickhouseMonitor(self._client, place, target.flow, target.branch)
        unfinished = self._state.head.intent is not None
        with self._noting():
            monitoring.prepare(self._client, self._database)
            ClickhouseRejected.beside(self._client, sink).prepare()
            self._monitor.note_open(name, config, self._branch.epoch)
            self._monitor.settle(self.checkpoint.totals, unfinished=unfinished)
            views.prepare(self._client, self._database)

    @override
    def begin(self, span: Span) -> Span:
        start = super().begin(span)
        if not start.empty:
            with self._noting():
                self._monitor.note_begin(self.checkpoint.totals)
        return start

    @override
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        checkpoint = super().finish(span, receipts, source)
        with self._noting():
            self._monitor.note_success(checkpoint.totals)
        return checkpoint

    @override
    def note_end(self, error: BaseException | None) -> None:
        with self._noting():
            self._monitor.note_end(kind_and_message(error))

    def _noting(self) -> AbstractContextManager[None]:
        return noting(self._sink.address(), self._target.flow)
