"""Sums of a branch's reports between two events of its asset."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from dataflow_assets.contracts import Totals
from dataflow_assets.runs.request import Report

EVERY_SECONDS = 10.0  # between two events of an asset, at least
IDLE_SECONDS = 1.0  # without a report, after which a run counts as idle


@dataclass(frozen=True)
class Figures:
    """The flat numbers of one event, in the order in which they are shown."""

    lag_seconds: float | None
    lag_records: int
    rows: int
    rejected: int
    rows_per_second: float
    state_bytes: int | None = None
    """Of a query with state what it keeps; None of other flows."""


class Tally:
    """Gathers the reports of one branch, so that events come at most every `EVERY_SECONDS`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.shown_at = self._added = clock()
        self._waiting: Report | None = None
        self._delta = Totals()
        self._seconds = 0.0

    def add(self, report: Report) -> None:
        self._waiting, self._added = report, self._clock()
        self._delta += report.delta
        self._seconds += report.seconds

    @property
    def due(self) -> bool:
        """Returns whether something new waits, and the last event is old enough."""
        return self._waiting is not None and self._clock() - self.shown_at >= EVERY_SECONDS

    @property
    def idle(self) -> bool:
        """True where no report came for a while: a run that ends tells its last one itself."""
        return self._clock() - self._added >= IDLE_SECONDS

    def take(self) -> tuple[Report, Figures] | None:
        """Returns what was gathered since the last event; None when nothing was."""
        report = self._waiting
        return (report, self.final(report)) if report else None

    def final(self, report: Report) -> Figures:
        """Figures of the last report, which may have been counted before: its rows are 0 then."""
        rate = self._delta.rows / self._seconds if self._seconds > 0 else 0.0
        age = report.lag.seconds
        figures = Figures(
            None if age is None else round(age, 3),
            report.lag.records,
            self._delta.rows,
            self._delta.rejected,
            round(rate, 1),
            report.lag.state,
        )
        self._waiting, self.shown_at = None, self._clock()
        self._delta, self._seconds = Totals(), 0.0
        return figures
