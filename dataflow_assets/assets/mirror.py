"""The checkpoint as people and sensors see it: a JSON value, its hash, and figures to plot.

The sink's checkpoint is the truth, this is its mirror: losing it costs one look at the sink.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dataflow_assets.contracts import Checkpoint, Totals
from dataflow_assets.runs.request import Report

VERSION = 1
EVERY_SECONDS = 10.0
IDLE_SECONDS = 1.0


def to_json(checkpoint: Checkpoint) -> dict[str, Any]:
    """Everything a sensor needs to know, and what a person may want to."""
    at = checkpoint.committed_at
    return {
        "version": VERSION,
        "positions": dict(checkpoint.positions),
        "totals": asdict(checkpoint.totals),
        "epoch": checkpoint.epoch,
        "source": checkpoint.source,
        "target": checkpoint.target,
        "run": checkpoint.run,
        "committed_at": at.isoformat() if at else None,
    }


def positions(value: Any) -> Mapping[str, int | str] | None:
    """The positions of a mirrored checkpoint; None when it is none of ours."""
    if not isinstance(value, dict) or value.get("version") != VERSION:
        return None
    found = value.get("positions")
    return found if isinstance(found, dict) and found else None


def data_version(checkpoint: Checkpoint) -> str:
    """Hash of what the table holds: of positions and identities, not of epochs and runs."""
    return _hash(checkpoint.positions, checkpoint.source, checkpoint.target)


def version_of(value: Any) -> str | None:
    """The same hash, of a mirrored checkpoint."""
    if positions(value) is None:
        return None
    return _hash(value["positions"], value.get("source"), value.get("target"))


def _hash(where: Mapping[str, int | str], source: str | None, target: str | None) -> str:
    content = json.dumps([dict(where), source, target], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Figures:
    """The flat numbers of one event, in the order in which they are shown."""

    lag_seconds: float
    lag_records: int
    rows: int
    rejected: int
    rows_per_second: float


class Tally:
    """Gathers the reports of one branch, so that events come at most every `EVERY_SECONDS`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.told = self._added = clock()
        self._waiting: Report | None = None
        self._delta = Totals()
        self._seconds = 0.0

    def add(self, report: Report) -> None:
        """Takes one more report."""
        self._waiting, self._added = report, self._clock()
        self._delta += report.delta
        self._seconds += report.seconds

    @property
    def due(self) -> bool:
        """Whether something new waits, and the last event is old enough."""
        return self._waiting is not None and self._clock() - self.told >= EVERY_SECONDS

    @property
    def idle(self) -> bool:
        """Whether no report came for a while: a run that ends at once tells its last one itself."""
        return self._clock() - self._added >= IDLE_SECONDS

    def take(self) -> tuple[Report, Figures] | None:
        """What was gathered since the last event; None when nothing was."""
        report = self._waiting
        return (report, self.final(report)) if report else None

    def final(self, report: Report) -> Figures:
        """The same as of this report, which may repeat the last one: its rows are 0 then."""
        rate = self._delta.rows / self._seconds if self._seconds > 0 else 0.0
        figures = Figures(
            round(report.lag.seconds, 3),
            report.lag.records,
            self._delta.rows,
            self._delta.rejected,
            round(rate, 1),
        )
        self._waiting, self.told = None, self._clock()
        self._delta, self._seconds = Totals(), 0.0
        return figures
