"""Events of a lane's flows while it drives them, in the order in which they happen."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import Flow
from dataflow_assets.runs.request import Report


@dataclass(frozen=True)
class Began:
    """The flow is driven from now on: the first event of its stay in the lane."""

    flow: Flow


@dataclass(frozen=True)
class Failing:
    """The flow, or one branch of it, has met an error and tries again.

    `lasting`: the branch will not come back by itself; the others of the flow go on.
    """

    flow: Flow
    error: DataflowError
    lasting: bool


@dataclass(frozen=True)
class Recovered:
    """The end of a flow's trouble, with nothing left to read: no report would tell."""

    flow: Flow


@dataclass(frozen=True)
class Left:
    """The flow has failed, and the lane goes on without it: the last event of its stay.

    What was reported is committed. `error` is what `runs.drain` has raised, secrets included.
    """

    flow: Flow
    error: BaseException


@dataclass(frozen=True)
class Ended:
    """The flow has ended after its micro-batch, as it was asked to: the last event of its stay."""

    flow: Flow
    reason: str


Event = Began | Report | Failing | Recovered | Left | Ended | None
"""None: nothing has happened for a moment."""
