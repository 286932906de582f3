"""The display of a run while it works.

One live line per branch on a terminal, plain lines elsewhere, JSON objects for programs.
"""

from __future__ import annotations

import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from dataflow_assets.cli.console import err, out, paint
from dataflow_assets.cli.running import FlowOutcome, Shown
from dataflow_assets.contracts import Totals
from dataflow_assets.lanes.events import Began
from dataflow_assets.runs.request import Report

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

QUIET_SECONDS = 10.0  # between two plain lines of one branch

Describe = Callable[[BaseException], str]
"""One sentence about an error, without secrets."""


class Display(ABC):
    """Shows events of `running.run`."""

    @abstractmethod
    def show(self, event: Shown) -> None: ...

    @abstractmethod
    def say(self, text: str) -> None:
        """Prints a line beside the display: warnings of the engine."""

    @abstractmethod
    def close(self, outcomes: Sequence[FlowOutcome]) -> None: ...


@dataclass(frozen=True)
class BranchProgress:
    """One branch in this run, summed up."""

    report: Report
    totals: Totals

    def plus(self, report: Report) -> BranchProgress:
        """With one report more; the last one has no rate of its own."""
        rate = self.report if report.last else report
        merged = replace(report, delta=rate.delta, seconds=rate.seconds)
        return BranchProgress(merged, self.totals + report.delta)

    def __str__(self) -> str:
        lag, rate = self.report.lag, self.report.rows_per_second
        age = "an unknown time" if lag.seconds is None else f"{lag.seconds:.0f} s"
        return (
            f"{self.totals.rows:,} rows ({rate:,.0f}/s), {self.totals.rejected:,} rejected, "
            f"behind by {lag.records:,} records, {age}"
        )


class Lines(Display):
    """Plain lines: one at the start and end of a flow, at most one each ten seconds between."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._branches: dict[tuple[str, str], BranchProgress] = {}
        self._shown: dict[tuple[str, str], float] = {}

    @override
    def show(self, event: Shown) -> None:
        if isinstance(event, Began):
            sinks = ", ".join(str(branch.address) for branch in event.flow.branches)
            out(f"{event.flow.id}: {event.flow.source_address} -> {sinks}")
        elif isinstance(event, FlowOutcome):
            out(ending(event, self._describe))
        else:
            self._report(event)

    def _report(self, report: Report) -> None:
        key = (report.flow, report.branch.id)
        branch = _next(self._branches, report)
        now = time.monotonic()
        if not report.last and now - self._shown.setdefault(key, now) >= QUIET_SECONDS:
            self._shown[key] = now
            out(f"{report.flow}: {report.address}: {branch}")

    @override
    def say(self, text: str) -> None:
        err(text)

    @override
    def close(self, outcomes: Sequence[FlowOutcome]) -> None:
        pass  # each flow has said how it ended


class Terminal(Display):
    """A live table on a terminal; the last state of it stays."""

    def __init__(self, describe: Describe) -> None:
        from rich.live import Live

        self._describe = describe
        self._branches: dict[tuple[str, str], BranchProgress] = {}
        self._waiting: dict[str, str] = {}
        self._live: Live = Live(get_renderable=self._table, refresh_per_second=4)
        self._live.start()

    @override
    def show(self, event: Shown) -> None:
        if isinstance(event, Began):
            self._waiting[event.flow.id] = "starting"
        elif isinstance(event, FlowOutcome):
            self._waiting.pop(event.flow.id, None)
        else:
            self._waiting.pop(event.flow, None)
            _next(self._branches, event)

    def _table(self) -> RenderableType:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("flow")
        table.add_column("into")
        for name in ("rows", "rows/s", "rejected", "behind", "seconds"):
            table.add_column(name, justify="right")
        for branch in self._branches.values():
            report, totals = branch.report, branch.totals
            numbers = (
                totals.rows,
                round(report.rows_per_second),
                totals.rejected,
                report.lag.records,
            )
            age = "?" if report.lag.seconds is None else f"{report.lag.seconds:.0f}"
            table.add_row(
                *[report.flow, str(report.address), *(f"{number:,}" for number in numbers), age]
            )
        for flow, state in self._waiting.items():
            table.add_row(flow, f"[dim]{state}[/dim]")
        return table

    @override
    def say(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    @override
    def close(self, outcomes: Sequence[FlowOutcome]) -> None:
        self._live.stop()  # which leaves the table as it stands
        for outcome in outcomes:
            out(ending(outcome, self._describe))


class Json(Display):
    """One JSON object per report, and a last one with the outcome."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe

    @override
    def show(self, event: Shown) -> None:
        if isinstance(event, Report):
            out(json.dumps(_as_json(event)))

    @override
    def say(self, text: str) -> None:
        err(text)

    @override
    def close(self, outcomes: Sequence[FlowOutcome]) -> None:
        # the outcome of the whole is the worst of its parts
        kinds = [outcome.outcome for outcome in outcomes]
        worst = next((kind for kind in ("failed", "stopped") if kind in kinds), "done")
        flows = [self._outcome(outcome) for outcome in outcomes]
        errors = [flow["error"] for flow in flows if flow["error"]]
        out(json.dumps({"outcome": worst, "error": "; ".join(errors) or None, "flows": flows}))

    def _outcome(self, outcome: FlowOutcome) -> dict[str, Any]:
        return {
            "flow": outcome.flow.id,
            "outcome": outcome.outcome,
            "reason": outcome.reason,
            "error": self._describe(outcome.error) if outcome.error else None,
            "seconds": round(outcome.seconds, 3),
            **asdict(outcome.totals),
        }


def display(as_json: bool, describe: Describe) -> Display:
    if as_json:
        return Json(describe)
    return Terminal(describe) if sys.stdout.isatty() else Lines(describe)


def ending(outcome: FlowOutcome, describe: Describe) -> str:
    """Returns how the run of one flow ended, in one line."""
    if outcome.error is not None:
        text = describe(outcome.error)
        names_flow = outcome.flow.id in text
        failed = paint("failed", "error")
        return f"{failed}: {text}" if names_flow else f"{outcome.flow.id}: {failed}: {text}"
    totals = outcome.totals
    rows = f"{totals.rows:,} row{'' if totals.rows == 1 else 's'}"
    counts = f"{rows}, {totals.rejected:,} rejected in {outcome.seconds:.1f} s"
    word = paint(outcome.outcome, "good" if outcome.outcome == "done" else "note")
    return f"{outcome.flow.id}: {word}: {counts}: {outcome.reason}".rstrip(": ")


def _next(branches: dict[tuple[str, str], BranchProgress], report: Report) -> BranchProgress:
    key = (report.flow, report.branch.id)
    branch = branches.get(key)
    branches[key] = branch.plus(report) if branch else BranchProgress(report, report.delta)
    return branches[key]


def _as_json(report: Report) -> dict[str, Any]:
    totals, age = report.checkpoint.totals, report.lag.seconds
    return {
        "flow": report.flow,
        "branch": report.branch.id,
        "asset": str(report.address),
        "positions": dict(report.checkpoint.positions),
        "epoch": report.checkpoint.epoch,
        "rows": report.delta.rows,
        "rejected": report.delta.rejected,
        "bytes": report.delta.bytes,
        "total_rows": totals.rows,
        "total_rejected": totals.rejected,
        "lag_records": report.lag.records,
        "lag_seconds": None if age is None else round(age, 3),
        "seconds": round(report.seconds, 3),
        "rows_per_second": round(report.rows_per_second, 1),
        "last": report.last,
        "reason": report.reason,
    }
