"""Reports of a run's branches: a report per commit, and whether too much was rejected."""

from __future__ import annotations

import time
from dataclasses import replace

from dataflow_assets.contracts import (
    CountsFiles,
    CountsRows,
    Lag,
    Positions,
    Rejects,
    SourceSession,
)
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.micro_batch.rejected_share import too_many
from dataflow_assets.runs.branch_turns import OpenBranch
from dataflow_assets.runs.request import Report
from dataflow_assets.runs.retries import RunProgress


class Reporting:
    """The reports of one attempt.

    `lag_seconds`: how often the age of the oldest unread record is asked for.
    """

    def __init__(
        self, flow: Flow, source: SourceSession, progress: RunProgress, lag_seconds: float
    ) -> None:
        self._flow, self._source, self._progress = flow, source, progress
        self._lag_seconds = lag_seconds
        self._lags: dict[str, tuple[float, Lag]] = {}

    def commit(self, opened: OpenBranch, seconds: float) -> Report:
        """Reports a commit just made, `seconds` after the one before."""
        branch, checkpoint = opened.branch, opened.session.checkpoint
        table = opened.session.table
        delta = checkpoint.totals - self._progress.reported[branch.id]
        self._progress.reported[branch.id] = checkpoint.totals
        self._progress.totals += delta
        lag = _move(self._lag(branch, checkpoint.positions), checkpoint.positions)
        report = replace(
            Report(self._flow.id, branch, branch.address, checkpoint, delta, lag, seconds),
            table_rows=table.row_count() if isinstance(table, CountsRows) else None,
            table_files=table.file_count() if isinstance(table, CountsFiles) else None,
        )
        self._progress.metrics.note_commit(report)
        return report

    def last(self, opened: OpenBranch, reason: str) -> Report:
        self._lags.pop(opened.branch.id, None)
        report = replace(self.commit(opened, 0.0), last=True, reason=reason)
        return replace(report, schema=opened.session.table.schema())

    def judge(self) -> None:
        """Raises PermanentError when the run has rejected more than the flow allows."""
        done, policies = self._progress.totals, self._flow.policies
        most = policies.max_rejected_percent
        consumed = done.rows + done.rejected
        if too_many(done.rejected, consumed, most):
            raise PermanentError(
                f"flow {self._flow.id}: {done.rejected} of {consumed} records of this run were "
                f"rejected, more than maxRejectedPercent {most:g}; they "
                f"{fate_of(policies.rejects)}. Fix the table, the steps or the producer, "
                "or raise the limit"
            )

    def _lag(self, branch: Branch, positions: Positions) -> Lag:
        """Asked for every few seconds only: the age of a record costs a read."""
        now = time.monotonic()
        taken, lag = self._lags.get(branch.id, (0.0, None))
        if lag is None or now - taken >= self._lag_seconds:
            lag = self._source.lag(positions)
            self._lags[branch.id] = (now, lag)
        return lag


def _move(lag: Lag, positions: Positions) -> Lag:
    """The lag with its records counted again from positions that have moved since."""
    ends = {p: end for p, end in lag.ends.items() if isinstance(end, int)}
    if not ends:
        return lag
    records = sum(max(0, end - int(positions.get(p, end))) for p, end in ends.items())
    return replace(lag, records=records, seconds=lag.seconds if records else 0.0)


def fate_of(rejects: Rejects) -> str:
    """Returns what happens to rejected records: the end of a sentence about them."""
    if rejects.way == "errors":
        held = ", and the flow stops at them" if rejects.holds else ""
        return f"are in the error sink {rejects.address}{held}"
    return {
        "table": "are kept in the table of rejected records",
        "skip": "are skipped: the log names them",
        "fail": "stop the flow",
    }[rejects.way]
