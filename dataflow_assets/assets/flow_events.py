"""Reports of one flow as Dagster's: events of its assets, versions, checks.

The same for a run of the flow's own and for a lane's run; who has the run decides when to tell.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from dataflow_assets.assets import mirror
from dataflow_assets.assets.drive_states import RUNNING
from dataflow_assets.assets.graph import AssetNode, Key, in_order
from dataflow_assets.assets.metadata import (
    COLUMN_SCHEMA,
    DATA_VERSION,
    QUIET_SECONDS,
    STATE,
    check_results,
    column_lineage,
    column_schema,
    event_metadata,
    language_metrics,
    state_metadata,
)
from dataflow_assets.assets.tally import Tally
from dataflow_assets.contracts import Checkpoint, oldest
from dataflow_assets.runs.request import Report


class FlowEvents:
    """The reports of one flow, gathered by branch until they are told.

    One for each run of a flow's own, and one for each stay of a flow in a lane; used by the thread
    that writes the events of the run.
    """

    def __init__(self, nodes: Sequence[AssetNode], also: Mapping[str, Any] | None = None) -> None:
        """`also`: metadata that each materialization has besides."""
        self._also = also or {}
        self._nodes = {node.branch.id: node for node in nodes}
        self._tallies = {node.branch.id: Tally() for node in nodes}
        self._last: dict[str, Report] = {}
        self._moved: set[str] = set()
        self._answers: dict[tuple[str, str], bool] = {}
        self._rejected: dict[str, float] = {}

    @property
    def nodes(self) -> Sequence[AssetNode]:
        return list(self._nodes.values())

    def take(self, report: Report) -> None:
        """Takes one more report; the last one of a run that had nothing new waits for no event."""
        branch = report.branch.id
        self._last[branch] = report
        if report.delta.rejected:
            self._rejected[branch] = time.monotonic()
        if not report.last or report.delta.rows or report.delta.rejected:
            self._moved.add(branch)
            self._tallies[branch].add(report)

    def lag_seconds(self) -> float | None:
        """Returns the seconds that the flow lagged when it last reported; None where unknown."""
        return oldest([report.lag.seconds for report in self._last.values()])

    @property
    def has_reports(self) -> bool:
        return bool(self._last)

    def due(self, *, idle: bool = False) -> list[AssetNode]:
        """The assets whose last event is old enough; `idle`: only where reports have paused."""
        branches = [branch for branch, tally in self._tallies.items() if tally.due]
        return [self._nodes[b] for b in branches if not idle or self._tallies[b].idle]

    def since(self, node: AssetNode) -> float:
        """When the asset's last event was, on the clock of `time.monotonic`."""
        return self._tallies[node.branch.id].shown_at

    def event(self, node: AssetNode) -> dg.AssetMaterialization | None:
        """Returns what of the asset waits to be told; None where nothing does."""
        taken = self._tallies[node.branch.id].take()
        if taken is None:
            return None
        report, figures = taken
        metadata = event_metadata(report.checkpoint, figures, report.table_rows)
        metadata |= language_metrics(node.flow, report.lag) | state_metadata(report.lag)
        metadata |= {STATE: RUNNING, **self._also}
        return _materialization(node, report.checkpoint, metadata)

    def final(self, node: AssetNode) -> dict[str, Any]:
        """The metadata of the last event: the last checkpoint, and what only the end tells."""
        report = self._last[node.branch.id]
        figures = self._tallies[node.branch.id].final(report)
        metadata = event_metadata(report.checkpoint, figures, report.table_rows)
        metadata |= language_metrics(node.flow, report.lag) | state_metadata(report.lag)
        metadata |= {"ended": report.reason, **self._also}
        if report.schema is not None:
            metadata[COLUMN_SCHEMA] = column_schema(report.schema)
            metadata.update(column_lineage(node, report.schema))
        return metadata

    def final_event(self, node: AssetNode) -> dg.AssetMaterialization:
        return _materialization(node, self._last[node.branch.id].checkpoint, self.final(node))

    def ended_nodes(self) -> list[AssetNode]:
        """The assets whose last report is here: none where the flow failed."""
        return [self._nodes[branch] for branch, report in self._last.items() if report.last]

    def has_commits(self, node: AssetNode) -> bool:
        return node.branch.id in self._moved

    def evaluations(self) -> Iterator[dg.AssetCheckEvaluation]:
        """The checks as events of a run that has not planned them: first answers, and new ones."""
        for branch in self._last.keys() & self._moved:
            for evaluation in self._checks(branch):
                before = self._answers.get((branch, str(evaluation.check_name)))
                if evaluation.passed != before:
                    self._answers[branch, str(evaluation.check_name)] = evaluation.passed
                    yield _evaluation(evaluation)

    def checks(self) -> Iterator[dg.AssetCheckResult]:
        """Answers of each branch's last report to the questions asked about every flow."""
        for branch in self._last:
            yield from self._checks(branch)

    def _checks(self, branch: str) -> Iterator[dg.AssetCheckResult]:
        report, last = self._last[branch], self._rejected.get(branch, float("-inf"))
        rejects = time.monotonic() - last < QUIET_SECONDS
        node = self._nodes[branch]
        yield from check_results(node, report.lag, report.checkpoint, rejects=rejects)

    def checkpoints(self) -> Mapping[Key, Checkpoint]:
        """Returns where each asset stands, as far as anything was reported."""
        return {self._nodes[branch].key: last.checkpoint for branch, last in self._last.items()}


class LastEvents:
    """The flows whose last events wait; used by the thread that writes the events of the run.

    A table comes before those that are filled from it. All flows are looked through once for all
    that end together, not once for each of them.
    """

    def __init__(self) -> None:
        self._new: list[FlowEvents] = []
        self._ordered: list[FlowEvents] = []

    def __bool__(self) -> bool:
        return bool(self._new or self._ordered)

    def add(self, events: FlowEvents) -> None:
        """Takes a flow that the lane has let go."""
        self._new.append(events)

    def next(self) -> FlowEvents:
        """Gives one that reads from none of the others; raises IndexError where none waits."""
        if self._new:
            self._ordered = _in_order([*self._ordered, *self._new])
            self._new = []
        return self._ordered.pop(0)


def _in_order(events: Sequence[FlowEvents]) -> list[FlowEvents]:
    return [events[at] for at in in_order([one.nodes for one in events])]


def _materialization(
    node: AssetNode, checkpoint: Checkpoint, metadata: Mapping[str, Any]
) -> dg.AssetMaterialization:
    version = {DATA_VERSION: mirror.data_version(checkpoint)}
    return dg.AssetMaterialization(dg.AssetKey(node.key), metadata=metadata, tags=version)


def _evaluation(found: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
    assert found.asset_key is not None  # noqa: S101 - our results name their asset
    return dg.AssetCheckEvaluation(
        asset_key=found.asset_key,
        check_name=str(found.check_name),
        passed=found.passed,
        metadata=found.metadata,
        severity=found.severity,
    )
