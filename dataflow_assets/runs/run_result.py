"""The outcome of a scheduled run, as its triggers are told in their environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from dataflow_assets.contracts import Positions, Totals
from dataflow_assets.flow import Flow
from dataflow_assets.runs.request import Report


@dataclass(frozen=True)
class RunResult:
    """Counts of a run over all targets of its flow, and where its main target stands."""

    flow: str
    run: str
    status: Literal["success", "failure", "stopped"] = "success"
    """`stopped`: cut short, for instance by a maintenance window; no trigger follows."""
    rows: int | None = None
    """None where the run has failed before it could say."""
    rejected: int | None = None
    positions: Positions = field(default_factory=dict)
    error: str = ""

    def with_error(self, error: str) -> RunResult:
        """Returns the result of a run that failed after its drain."""
        return replace(self, status="failure", error=error)

    def environment(self) -> dict[str, str]:
        """Returns the variables that each trigger has beside those of its own."""
        values = {
            "FLOW": self.flow,
            "ID": self.run,
            "STATUS": self.status,
            "ROWS": "" if self.rows is None else str(self.rows),
            "REJECTED": "" if self.rejected is None else str(self.rejected),
            "POSITIONS": json.dumps(dict(self.positions)),
            "ERROR": self.error,
        }
        return {f"DATAFLOW_RUN_{name}": value for name, value in values.items()}

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> RunResult:
        """Reads what `as_text` wrote."""
        return cls(**json.loads(text))


class ResultCounter:
    """Sums up the reports of a run."""

    def __init__(self, flow: Flow) -> None:
        self._flow, self._totals = flow, Totals()
        self._positions: Mapping[str, Any] = {}

    def add(self, report: Report) -> None:
        self._totals += report.delta
        if report.branch.main:
            self._positions = report.checkpoint.positions

    def result(self, run: str) -> RunResult:
        totals = self._totals
        return RunResult(
            self._flow.id, run, "success", totals.rows, totals.rejected, dict(self._positions)
        )
