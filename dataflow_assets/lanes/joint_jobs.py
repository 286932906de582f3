"""The turns of a lane: one look for all that wait for news, then jobs for all that have some.

One thread does it all, so that one Spark job runs at a time. Small passes are one job together. A
pass over a frame of Spark's reader is a job of its own, and aims at two seconds; the next joint job
comes once such jobs have used one, so that a backlog holds up nobody for longer than its turn.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING

from dataflow_assets.errors import DataflowError, TransientError
from dataflow_assets.lanes.member import Member, Waiting
from dataflow_assets.lanes.pace import TURN_SECONDS
from dataflow_assets.micro_batch import job
from dataflow_assets.micro_batch.job import Outcome, Reading
from dataflow_assets.micro_batch.tasks import CutOff, JobDied, limited, within
from dataflow_assets.runs.ends import Looks, OpenSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LEAST_SECONDS = 1.0  # between two looks
GATHER_SECONDS = 0.3  # how long members that were woken are waited for
STEP_SECONDS = 0.5  # in which somebody who was asked to end is heard
BACKLOG_SECONDS = 10.0  # after a large job in which another one is expected
JOB_SECONDS = 45.0  # after which a job of a lane is cut off
_PARTS = 2  # of a table in one turn; each has about as many rows as a turn may take
_FIRST_SLICES = 50  # of a joint job, while nothing is known about them


class Rounds:
    """Gives the members of a lane their turns. `members` gives those that there are now."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        board: threading.Condition,
        members: Callable[[], Sequence[Member]],
    ) -> None:
        self._spark, self._board, self._members = spark, board, members
        self._looks = Looks()
        self._next_look = time.monotonic()
        self._slices = float(_FIRST_SLICES)
        self._joint_seconds = 0.0
        self._large_job = float("-inf")  # when somebody had a job for a frame of Spark's reader
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="lane", daemon=True)

    def start(self) -> None:
        """Begins to give turns."""
        self._thread.start()

    def stop(self) -> None:
        """Ends once the job that runs is over; nobody gets a turn any more."""
        with self._board:
            self._stopped = True
            self._board.notify_all()
        self._thread.join(JOB_SECONDS)

    def interval(self, member: Member) -> float:
        """Seconds between two turns of a member that has little to read.

        Four times what a joint job takes, as a share of the strictest freshness: commits take about
        as long as jobs, and half of the time is left. Never more than half of the member's own
        freshness. While somebody works off a backlog, half as often again, and three quarters.
        """
        backlog = time.monotonic() - self._large_job < BACKLOG_SECONDS
        jobs, most = (6, 0.75) if backlog else (4, 0.5)
        strictest = min((one.freshness for one in self._members()), default=member.freshness)
        share = min(most, jobs * self._joint_seconds / strictest)
        return min(max(LEAST_SECONDS, share * member.freshness), most * member.freshness)

    def _run(self) -> None:
        while not self._stopped:
            with self._board:
                self._board.wait_for(self._wanted, STEP_SECONDS)
            try:
                self._round()
            except Exception as error:
                log.exception("a round of the lane failed")
                for member in self._members():
                    member.answer(_unexpected(error))
        for member in self._members():
            member.close(TransientError("the lane has ended"))

    def _wanted(self) -> bool:
        return self._stopped or any(member.waiting for member in self._members())

    def _round(self) -> None:
        self._wake_those_with_something_else_to_do()
        if time.monotonic() >= self._next_look:
            self._look()
        with self._board:
            self._board.wait_for(self._all_here, GATHER_SECONDS)
        waiting = sorted(self._waiting(), key=_urgency, reverse=True)
        together = [member for member in waiting if _reading(member) and not member.apart]
        if together:
            self._together(together)
        began = time.monotonic()
        for member in [member for member in waiting if member not in together]:
            self._alone(member)
            if time.monotonic() - began >= TURN_SECONDS / 2:
                break  # what is left comes first in the next round

    def _all_here(self) -> bool:
        return self._stopped or not any(member.busy for member in self._members())

    def _waiting(self) -> list[Member]:
        return [member for member in self._members() if member.waiting is not None]

    def _wake_those_with_something_else_to_do(self) -> None:
        """A session that is being asked right now belongs to the look."""
        for member in self._members():
            if _has_else_to_do(member) and not self._looks.asking(member.flow.id):
                member.wake()

    def _look(self) -> None:
        """Wakes the members with something new, and those whose source cannot be asked."""
        began = time.monotonic()
        due = {one.flow.id: one for one in self._members() if self._due(one, began)}
        sources = {
            name: OpenSource(one.paused.source, one.paused.session, (one.paused.after,))
            for name, one in due.items()
            if one.paused is not None
        }
        for name, found in self._looks.ends_together(sources).items():
            if isinstance(found, DataflowError):
                due[name].wake(copy(found))  # others may raise it too
            elif any(found.news):
                due[name].wake()
        self._next_look = began + LEAST_SECONDS

    def _due(self, member: Member, now: float) -> bool:
        """One that is being asked is, until the answer is there."""
        pause = member.paused
        if pause is None or self._looks.asking(member.flow.id):
            return pause is not None
        rested = now - member.paused_at >= pause.seconds
        return rested and now - member.woken >= self.interval(member)

    def _together(self, members: Sequence[Member]) -> None:
        """One job for as many slices as about one turn can take, the most urgent first."""
        asked: dict[Reading, list[tuple[int, ...]]] = {}
        chosen: list[Member] = []
        room = self._slices
        for member in members:
            reading = _reading(member)
            if reading is None or room <= 0:
                continue
            asked[reading] = reading.take(_PARTS)
            chosen.append(member)
            room -= len(asked[reading])
        began = time.monotonic()
        if not self._done(chosen, lambda spark: job.read(spark, asked)):
            return
        self._joint_seconds = time.monotonic() - began
        self._learn(sum(map(len, asked.values())), full=room <= 0)
        for member in chosen:
            member.apart = False
            _answer(member)

    def _learn(self, slices: int, *, full: bool) -> None:
        """How many slices a turn can take. A few in little time tell nothing: a job has a cost."""
        could = slices * TURN_SECONDS / max(self._joint_seconds, 0.01)
        if full or self._joint_seconds > TURN_SECONDS:
            self._slices = max(_FIRST_SLICES / 2, min(could, 2 * self._slices))

    def _alone(self, member: Member) -> None:
        waiting = member.waiting
        assert waiting is not None  # noqa: S101 - whoever has a turn waits
        if waiting.reading is not None:
            self._together([member])
            return
        self._large_job = began = time.monotonic()
        outcomes = list[Outcome]()
        if not self._done([member], lambda spark: outcomes.append(job.run(spark, waiting.planned))):
            return
        if waiting.planned.work.span.full:
            member.pace.took(time.monotonic() - began)
        member.apart = False
        member.answer(*outcomes)

    def _done(self, members: Sequence[Member], work: Callable[[SparkSession], None]) -> bool:
        """Has a job run in the time that it may take. False: it has failed, and they were told."""
        try:
            spark = self._spark()
        except TransientError as error:
            for member in members:
                member.answer(copy(error))
            return False
        try:
            with limited(spark, within(JOB_SECONDS)):
                work(spark)
        except Exception as error:  # noqa: BLE001 - also a mistake of ours is theirs only
            _failed(members, error)
            return False
        return True


def _failed(members: Sequence[Member], error: Exception) -> None:
    """A job that died tells nothing of its passes: each is tried apart, and the culprit is known.

    Its next jobs run beside those of the lane.
    """
    if len(members) > 1:
        for member in members:
            member.apart = True
            member.answer(copy(error) if isinstance(error, DataflowError) else _unexpected(error))
        return
    (member,) = members
    member.alone = isinstance(error, JobDied)
    if isinstance(error, CutOff):
        error = _too_long(member, error)
        log.warning("%s", error)
    member.answer(error)


def _unexpected(error: Exception) -> TransientError:
    found = TransientError(f"unexpected {type(error).__name__}: {error}")
    found.__cause__ = error
    return found


def _too_long(member: Member, error: CutOff) -> TransientError:
    return TransientError(
        f"flow {member.flow.id}: a micro-batch was cut off in its lane because {error}, and the "
        f"other flows were waiting. Nothing is lost: the flow reads again, in jobs of its own"
    )


def _reading(member: Member) -> Reading | None:
    waiting: Waiting | None = member.waiting
    return None if waiting is None else waiting.reading


def _answer(member: Member) -> None:
    reading = _reading(member)
    if reading is None or not reading.over:
        return
    try:
        answer: Outcome | Exception = reading.outcome()
    except Exception as error:  # noqa: BLE001 - the flow's own
        answer = error
    member.answer(answer)


def _urgency(member: Member) -> float:
    """How long it has waited, as a share of what it may."""
    return (time.monotonic() - member.passed) / member.freshness


def _has_else_to_do(member: Member) -> bool:
    pause = member.paused
    if pause is None:
        return False
    late = pause.most is not None and time.monotonic() - member.paused_at >= pause.most
    return late or pause.over()
