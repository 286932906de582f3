"""A thread of a lane that gives its members their turns: a Spark job for one of them, or for many.

A lane has two of them, so that two Spark jobs run at a time: one for what is small, together, and
one for what is large, a flow at a time. A backlog holds up nobody who has little to read.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING

from dataflow_assets.errors import DataflowError, Locked, TransientError
from dataflow_assets.lanes.member import LaneMember
from dataflow_assets.lanes.queued_pass import QueuedPass
from dataflow_assets.micro_batch.tasks import CutOff, JobDied, limit_jobs, within

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

STEP_SECONDS = 0.5  # in which somebody who was asked to end is heard
JOB_SECONDS = 45.0  # after which a job of a lane is cut off


class Turns(ABC):
    """Gives turns to those members whose passes are of its kind, in a thread of its own.

    Made, started, stopped and joined once by its lane. An error of a round, be it a mistake of
    ours, is told to the members that wait, and the thread goes on.
    """

    name: str
    """Of its thread."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        board: threading.Condition,
        members: Callable[[], Sequence[LaneMember]],
    ) -> None:
        """One kind of turns of a lane.

        Args:
            spark: as for `Lane`.
            board: the lane's condition; notified when a pass waits or a member pauses.
            members: gives those that there are now.
        """
        self._spark, self._board, self._members = spark, board, members
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._board:
            self._stopped = True
            self._board.notify_all()

    def join(self) -> None:
        """Once it was stopped: waits for the job that runs, for as long as a job may take."""
        self._thread.join(JOB_SECONDS)

    @abstractmethod
    def _mine(self, waiting: QueuedPass) -> bool: ...

    @abstractmethod
    def _round(self) -> None:
        """Gives turns once to some of those that wait, and does what comes between two turns."""

    def _run(self) -> None:
        while not self._stopped:
            with self._board:
                self._board.wait_for(lambda: self._stopped or self._waiting(), STEP_SECONDS)
            try:
                self._round()
            except Exception as error:
                log.exception("a round of the lane failed")
                for member in self._waiting():
                    member.answer(unexpected_error(error))

    def _waiting(self) -> list[LaneMember]:
        mine = [
            member
            for member in self._members()
            if (waiting := member.waiting) is not None and self._mine(waiting)
        ]
        return sorted(mine, key=_urgency, reverse=True)

    def _do(self, members: Sequence[LaneMember], work: Callable[[SparkSession], None]) -> bool:
        """Has a job run in the time that it may take. False: it has failed, and they were told."""
        try:
            spark = self._spark()
        except TransientError as error:
            for member in members:
                member.answer(copy(error))
            return False
        try:
            with limit_jobs(spark, within(JOB_SECONDS)):
                work(spark)
        except Exception as error:  # noqa: BLE001 - also a mistake of ours is theirs only
            _fail(members, error)
            return False
        return True


def unexpected_error(error: Exception) -> TransientError:
    """Returns what a flow is told of a mistake of ours."""
    failure = TransientError(f"unexpected {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _fail(members: Sequence[LaneMember], error: Exception) -> None:
    """A job that died tells nothing of its passes: each is tried singly, and the culprit is known.

    Its next jobs run beside those of the lane.
    """
    if len(members) > 1:
        for member in members:
            member.singly = True
            member.answer(
                copy(error) if isinstance(error, DataflowError) else unexpected_error(error)
            )
        return
    (member,) = members
    member.alone = isinstance(error, JobDied | Locked)
    if isinstance(error, CutOff):
        error = _too_long(member, error)
        log.warning("%s", error)
    member.answer(error)


def _too_long(member: LaneMember, error: CutOff) -> TransientError:
    return TransientError(
        f"flow {member.flow.id}: a micro-batch was cut off in its lane because {error}, and the "
        f"other flows were waiting. Nothing is lost: the flow reads again, in jobs of its own"
    )


def _urgency(member: LaneMember) -> float:
    return (time.monotonic() - member.passed) / member.freshness
