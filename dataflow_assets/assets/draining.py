"""The lazy drain: what a flow's asset returns and the IO manager of its sink's system consumes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg

from dataflow_assets.assets import mirror, stopping, switches
from dataflow_assets.assets.failures import failing
from dataflow_assets.assets.flow_events import FlowEvents
from dataflow_assets.assets.graph import AssetNode, Key
from dataflow_assets.assets.run_log import log_to_run
from dataflow_assets.contracts import Checkpoint, Run
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Report, Request, Start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SWITCH_SECONDS = 2.0


class FlowConfig(dg.Config):
    """The launchpad's options for a run of a flow."""

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
    """What happens to the rows when `start` rewinds. `adopt`, without `start`: a target that was
    rebuilt or restored holds the rows that the checkpoint says, and the flow goes on from there."""
    confirm: bool = False
    """Needed to rewind a table that is appended to and kept: its records are stored twice. Needed
    for `reload`, too, where a target is appended to."""
    reload: list[str] = []  # noqa: RUF012 - a pydantic field, copied per instance
    """Tables of a `postgresql-cdc` source whose rows are loaded again; the others are not."""

    def request(self, run: Run, stop: Callable[[], str | None]) -> Request:
        tables = tuple(self.reload)
        start = Start(self.start, self.timestamp, self.offsets, self.table, self.confirm, tables)
        return Request(run, self.seconds, self.until, start, stop=stop)


class Draining:
    """The run of a flow, not consumed yet. `write` consumes it, once for all its branches."""

    def __init__(
        self,
        nodes: Sequence[AssetNode],
        spark: "Callable[[], SparkSession]",
        context: dg.AssetExecutionContext,
        config: FlowConfig,
    ) -> None:
        self._flow = nodes[0].flow
        self._context = context
        self._events = FlowEvents(nodes)
        self._interrupts = stopping.Interrupts()
        request = config.request(Run(id=context.run.run_id[:12]), self._reason)
        self._looks = stopping.every(
            SWITCH_SECONDS,
            stopping.first(
                switches.switched_off(context.instance, self._flow, context.run),
                stopping.manifest_changed(self._flow),
                self._flow.pause_reason,
            ),
        )
        self._reports = drain(self._flow, spark, request)
        self._first: list[Report] = []

    def begin(self) -> bool:
        """Runs up to the first commit. False when the run is over and nothing was new."""
        with self._guard():
            for report in self._reports:
                self._first.append(report)
                if not report.last:
                    return True
        return any(report.delta.rows or report.delta.rejected for report in self._first)

    def write(self, key: dg.AssetKey) -> dict[str, Any]:
        """Drains to the end; returns the final event's metadata for one of the assets."""
        try:
            with self._guard():
                self._finish()
        except BaseException:
            self._tell(self._events.nodes)  # what was reported is committed, whatever came then
            raise
        node = next(node for node in self._events.nodes if dg.AssetKey(node.key) == key)
        version = mirror.data_version(self._events.checkpoints()[node.key])
        self._context.set_data_version(key, dg.DataVersion(version))
        return self._events.final(node)

    def checks(self) -> Iterator[dg.AssetCheckResult]:
        """Returns what the run found about each branch, once it is over."""
        self._finish()
        yield from self._events.checks()

    def checkpoints(self) -> Mapping[Key, Checkpoint]:
        """Returns where each asset stands, once the run is over."""
        self._finish()
        return self._events.checkpoints()

    def _finish(self) -> None:
        first, self._first = self._first, []
        for report in chain(first, self._reports):
            if not report.last:  # what waits then is told with the run's own event
                due, branch = self._events.due(), report.branch.id
                self._tell([node for node in due if node.branch.id == branch])
            self._events.take(report)

    def _reason(self) -> str | None:
        """Why to end between two micro-batches; being asked is also the time to tell what waits."""
        self._tell(self._events.due(idle=True))
        return self._interrupts.reason() or self._looks()

    def _tell(self, nodes: Sequence[AssetNode]) -> None:
        """An event for what of these assets waits, if anything does."""
        for node in nodes:
            if event := self._events.event(node):
                self._context.log_event(event)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Signals wait for the end of the micro-batch; errors become one sentence each."""
        context = self._context
        with (
            log_to_run(self._flow, context),
            failing(self._flow, context),
            self._interrupts.defer(),
        ):
            yield
