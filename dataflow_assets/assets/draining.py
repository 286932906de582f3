"""The lazy drain: what a flow's asset returns and the IO manager of its sink's system consumes."""

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg

from dataflow_assets.assets import mirror, stopping
from dataflow_assets.assets.graph import Key, Node
from dataflow_assets.assets.metadata import (
    COLUMN_SCHEMA,
    DATA_VERSION,
    check_results,
    column_lineage,
    column_schema,
    event_metadata,
)
from dataflow_assets.assets.runs import Runs, switched_off
from dataflow_assets.contracts import Checkpoint, Run
from dataflow_assets.errors import DataflowError, TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.redaction import mask
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Report, Request, Start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SWITCH_SECONDS = 2.0

Context = dg.AssetExecutionContext | dg.OpExecutionContext


class FlowConfig(dg.Config):
    """What the launchpad offers for a run of a flow."""

    start: Literal["checkpoint", "earliest", "latest", "timestamp", "offsets"] = "checkpoint"
    """Where to begin; anything but the checkpoint rewinds or skips."""
    timestamp: str | None = None
    """For `start: timestamp`, in ISO 8601: 2026-01-31T00:00:00Z."""
    offsets: dict[str, int] = {}  # noqa: RUF012 - a pydantic field, copied per instance
    """For `start: offsets`: partition to next offset; partitions left out begin at the earliest."""
    seconds: float | None = None
    """Go on for so long. Without it, the run drains to the end that is visible at its start."""
    until: str | None = None
    """Read what came before this time, in ISO 8601: 2026-01-31T00:00:00Z. In each partition, the
    first record of this time or later is the end."""
    table: Literal["keep", "truncate", "adopt"] = "keep"
    """What becomes of the rows when `start` rewinds. `adopt`, without `start`: a target that was
    rebuilt or restored holds the rows that the checkpoint says, and the flow goes on from there."""
    confirm: bool = False
    """Needed to rewind a table that is appended to and kept: its records are stored twice."""

    def request(self, run: Run, stop: Callable[[], str | None]) -> Request:
        """The same, as the loop takes it."""
        start = Start(self.start, self.timestamp, self.offsets, self.table, self.confirm)
        return Request(run, self.seconds, self.until, start, stop=stop)


class Draining:
    """The run of a flow, not consumed yet. `write` consumes it, once for all its branches."""

    def __init__(
        self,
        nodes: Sequence[Node],
        spark: "Callable[[], SparkSession]",
        context: dg.AssetExecutionContext,
        config: FlowConfig,
    ) -> None:
        self._flow = nodes[0].flow
        self._context = context
        self._nodes = {node.branch.id: node for node in nodes}
        self._tallies = {node.branch.id: mirror.Tally() for node in nodes}
        self._last: dict[str, Report] = {}
        self._interrupts = stopping.Interrupts()
        request = config.request(Run(id=context.run.run_id[:12]), self._reason)
        self._looks = stopping.every(
            SWITCH_SECONDS,
            stopping.first(
                switched_off(context.instance, self._flow, context.run),
                stopping.manifest_changed(self._flow),
            ),
        )
        self._reports = drain(self._flow, spark, request)
        self._first: list[Report] = []

    def begin(self) -> bool:
        """Runs up to the first commit. False when the run is over and nothing was new."""
        with self._guarded():
            for report in self._reports:
                self._first.append(report)
                if not report.last:
                    return True
        return any(report.delta.rows or report.delta.rejected for report in self._first)

    def write(self, key: dg.AssetKey) -> dict[str, Any]:
        """Drains to the end; the final event's metadata for one of the assets."""
        try:
            with self._guarded():
                self._finish()
        except BaseException:
            for branch in self._tallies:
                self._tell(branch)  # what was reported is committed, whatever came then
            raise
        node = next(node for node in self._nodes.values() if dg.AssetKey(node.key) == key)
        return self._final(node)

    def checks(self) -> Iterator[dg.AssetCheckResult]:
        """What the run found about each branch, once it is over."""
        self._finish()
        for branch, report in self._last.items():
            yield from check_results(self._nodes[branch], report.lag.seconds, report.checkpoint)

    def checkpoints(self) -> Mapping[Key, Checkpoint]:
        """Where each asset stands, once the run is over."""
        self._finish()
        return {self._nodes[branch].key: last.checkpoint for branch, last in self._last.items()}

    def _finish(self) -> None:
        first, self._first = self._first, []
        for report in first:
            self._take(report)
        for report in self._reports:
            self._take(report)

    def _reason(self) -> str | None:
        """Why to end between two micro-batches; being asked is also the time to tell what waits."""
        for branch, tally in self._tallies.items():
            if tally.due and tally.idle:
                self._tell(branch)
        return self._interrupts.reason() or self._looks()

    def _take(self, report: Report) -> None:
        branch = report.branch.id
        self._last[branch] = report
        if not report.last or report.delta.rows or report.delta.rejected:
            if self._tallies[branch].due:
                self._tell(branch)
            self._tallies[branch].add(report)

    def _tell(self, branch: str) -> None:
        """An event for what of this branch waits, if anything does."""
        taken = self._tallies[branch].take()
        if taken:
            self._log(self._nodes[branch], *taken)

    def _log(self, node: Node, report: Report, figures: mirror.Figures) -> None:
        self._context.log_event(
            dg.AssetMaterialization(
                asset_key=dg.AssetKey(node.key),
                metadata=event_metadata(report.checkpoint, figures, report.table_rows),
                tags={DATA_VERSION: mirror.data_version(report.checkpoint)},
            )
        )

    def _final(self, node: Node) -> dict[str, Any]:
        """The last checkpoint for the run's own event, with what only its end tells."""
        report = self._last[node.branch.id]
        version = dg.DataVersion(mirror.data_version(report.checkpoint))
        self._context.set_data_version(dg.AssetKey(node.key), version)
        figures = self._tallies[node.branch.id].final(report)
        found = event_metadata(report.checkpoint, figures, report.table_rows)
        found["ended"] = report.reason
        if report.schema is not None:
            found[COLUMN_SCHEMA] = column_schema(report.schema)
            found.update(column_lineage(node, report.schema))
        return found

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Signals wait for the end of the micro-batch; errors become one sentence each."""
        context = self._context
        with logged(self._flow, context), failing(self._flow, context), self._interrupts.deferred():
            yield


@contextmanager
def failing(flow: Flow, context: Context) -> Iterator[None]:
    """Our errors as Dagster's: one sentence; permanent ones switch off every kind of retry."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - raised again, as one sentence
        permanent = isinstance(error, DataflowError) and not isinstance(error, TransientError)
        text = mask(_sentence(error), [flow])
        if not isinstance(error, DataflowError):
            # not log.exception: that would show the traceback unmasked
            context.log.error(mask(traceback.format_exc(), [flow]))  # noqa: TRY400
        suspended = error.suspended if isinstance(error, DataflowError) else ()
        Runs(context.instance, flow).fail(context.run.run_id, text, suspended, permanent=permanent)
        # From None: the chain may show what a client library thinks fit, secrets included.
        raise dg.Failure(description=text, allow_retries=not permanent) from None


def _sentence(error: Exception) -> str:
    if isinstance(error, DataflowError):
        return str(error)
    return f"unexpected {type(error).__name__}: {error}"


class _ToRun(logging.Handler):
    """Carries what the engine says into the run's log, without secrets."""

    def __init__(self, flow: Flow, context: Context) -> None:
        super().__init__(logging.INFO)
        self._flow, self._context = flow, context

    def emit(self, record: logging.LogRecord) -> None:
        self._context.log.log(record.levelno, mask(self.format(record), [self._flow]))


@contextmanager
def logged(flow: Flow, context: Context) -> Iterator[None]:
    """What the engine logs, in the run's log."""
    logger, handler = logging.getLogger("dataflow_assets"), _ToRun(flow, context)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
