"""The process in which a run drives its flow: its own, or one that many flows share."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataflow_assets.contracts import Limit, Positions, Source, SourceSession
from dataflow_assets.errors import DataflowError
from dataflow_assets.micro_batch import job
from dataflow_assets.micro_batch.job import BatchOutcome, Planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDLE_SECONDS = 0.25  # between two looks at a source that has nothing new


@dataclass(frozen=True)
class Pause:
    """A run that has nothing to do waits.

    `session` of `source` is not used by the run meanwhile; `after` is what every branch has;
    `seconds` must pass before the source is asked again; after `most` the run has something else to
    do (None: never); `over` tells that the run is to end.
    """

    source: Source
    session: SourceSession
    after: Positions
    seconds: float
    most: float | None
    over: Callable[[], bool]


class NotStarted(Exception):
    """The run was asked to end before its pass got a turn: the next run reads what it would have.

    No error: nothing failed.
    """


class RunHost(ABC):
    """The run's questions to the process in which it is driven. Called by the run's own thread."""

    cadence: float
    """The least seconds between two commits of spans that are not full."""
    acknowledge_seconds: float
    """The least seconds between two reports to the source of what every branch has."""
    lag_seconds: float
    """The least seconds between two questions for the age of the oldest unread record."""

    @abstractmethod
    def beside(self) -> AbstractContextManager[Callable[[], SparkSession]]:
        """For jobs beside the passes: what gives a live session, which is used in the block only.

        A run that needs no session makes none. What is given raises TransientError when there is
        none to be had right now; a job that takes too long for the host raises CutOff.
        """

    @abstractmethod
    def limit(self, declared: Limit) -> Limit:
        """Returns what one slice may hold now; `declared` is the most that the flow allows."""

    @abstractmethod
    def run(self, planned: Planned) -> BatchOutcome:
        """Has a pass run and waits for it.

        Raises the gravest error of its tasks; TransientError when Spark itself failed; NotStarted
        where the run was asked to end meanwhile.
        """

    @abstractmethod
    def pause(self, pause: Pause) -> bool:
        """Waits until the source should be asked again, the run is to end, or `most` has passed.

        Returns whether the source should be asked now. Raises DataflowError where the source was
        asked meanwhile, and could not be.
        """

    @abstractmethod
    def failing(self, error: DataflowError, *, lasting: bool) -> None:
        """The run has met an error and goes on: it tries again, or goes on without the branch.

        `lasting`: the error is of one branch, and waiting will not help, or has not helped for as
        long as the run is patient. The run raises it at its end.
        """

    @abstractmethod
    def note_recovery(self) -> None:
        """Every branch is open and has read all there is: what the run had met is over."""


class Alone(RunHost):
    """The process is the run's own."""

    cadence = 1.0
    acknowledge_seconds = 0.0
    lag_seconds = 5.0

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        self._session = spark

    def beside(self) -> AbstractContextManager[Callable[[], SparkSession]]:
        """The given session, for any time."""
        return nullcontext(self._session)

    def limit(self, declared: Limit) -> Limit:
        return declared

    def run(self, planned: Planned) -> BatchOutcome:
        return job.run(self._session(), planned)

    def failing(self, error: DataflowError, *, lasting: bool) -> None: ...

    def note_recovery(self) -> None: ...

    def pause(self, pause: Pause) -> bool:
        wake = time.monotonic() + max(IDLE_SECONDS, pause.seconds)
        while time.monotonic() < wake and not pause.over():
            time.sleep(IDLE_SECONDS)
        return True
