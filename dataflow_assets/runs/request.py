"""The request for one run, and its reports."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from dataflow_assets.contracts import Address, Checkpoint, Lag, Run, Totals
from dataflow_assets.flow import Branch


@dataclass(frozen=True)
class Start:
    """The beginning of a run: the checkpoint, or a place chosen in the launchpad."""

    at: Literal["checkpoint", "earliest", "latest", "timestamp", "offsets"] = "checkpoint"
    timestamp: str | None = None
    offsets: Mapping[str, int] = field(default_factory=dict)
    table: Literal["keep", "truncate", "adopt"] = "keep"
    """What happens to the rows; `adopt`: a rebuilt table holds what the checkpoint says."""
    confirmed: bool = False
    reload: tuple[str, ...] = ()
    """Tables of the source whose rows are loaded again; the others are not."""
    resumed: bool = False
    """An attempt after the first one of the run: it goes on where that has come to."""


@dataclass(frozen=True)
class Patience:
    """The time for which transient errors are retried, from the first one since all was well."""

    seconds: float = 120.0
    first_wait: float = 0.5
    longest_wait: float = 15.0

    @classmethod
    def from_environment(cls) -> Patience:
        text = os.environ.get("DATAFLOW_PATIENCE")
        return cls(float(text)) if text else cls()


@dataclass(frozen=True)
class Request:
    """A request for one run. `seconds` None: drain to the end that was visible at start.

    With `until`, an ISO 8601 time, what came before that time is read and nothing else; `seconds`
    bounds how long that may take.
    """

    run: Run = field(default_factory=Run)
    seconds: float | None = None
    until: str | None = None
    start: Start = Start()
    patience: Patience = field(default_factory=Patience.from_environment)
    stop: Callable[[], str | None] = lambda: None
    """Asked between micro-batches; a reason ends the run."""


@dataclass(frozen=True)
class Report:
    """One commit of one branch, or the state in which the run left it (`delta` is empty then)."""

    flow: str
    branch: Branch
    address: Address
    checkpoint: Checkpoint
    delta: Totals
    lag: Lag
    seconds: float
    last: bool = False
    reason: str = ""
    """Why the run ended; only on the last report."""
    schema: pa.Schema | None = field(default=None, repr=False)
    """The target's columns; only on the last report."""

    table_rows: int | None = None
    """The table's rows in all, where its sink knows them exactly."""
    table_files: int | None = None
    """The table's data files, where its sink knows them."""

    @property
    def rows_per_second(self) -> float:
        """Rows of this commit over the time since the one before."""
        return self.delta.rows / self.seconds if self.seconds > 0 else 0.0
