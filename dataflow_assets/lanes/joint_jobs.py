"""Joint jobs: one look for all that wait for news, then one Spark job for all that have little."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING

from typing_extensions import override

from dataflow_assets.errors import DataflowError
from dataflow_assets.lanes.member import LaneMember
from dataflow_assets.lanes.queued_pass import QueuedPass
from dataflow_assets.lanes.turns import Turns
from dataflow_assets.metrics.process import recorder
from dataflow_assets.micro_batch import job
from dataflow_assets.micro_batch.job import TaskReading
from dataflow_assets.runs.news import Looks, OpenSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_SECONDS = 1.0  # between two looks for what is new
AIM_SECONDS = 2.0  # that a joint job may take: others wait for it
LEAST_SHARE = 0.25  # of a member's freshness, between two of its turns
GATHER_SECONDS = 0.3  # how long members that were woken are waited for
_FIRST_SLICES = 50  # of a joint job, while nothing is known about them
_FEWEST_SLICES = 25.0  # that a joint job is planned with, however slow the last ones were


class JointJobs(Turns):
    """Gives turns to members whose slices are read together, and looks for what is new."""

    name = "lane, joint jobs"

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        board: threading.Condition,
        members: Callable[[], Sequence[LaneMember]],
        backlog: Callable[[], bool],
    ) -> None:
        """Arguments are those of `Turns`; `backlog` tells that one is worked off meanwhile."""
        super().__init__(spark, board, members)
        self._backlog = backlog
        self._looks = Looks()
        self._next_look = time.monotonic()
        self._slices = float(_FIRST_SLICES)
        self._joint_seconds = 0.0

    def interval(self, member: LaneMember) -> float:
        """Seconds between two turns of a member that has little to read.

        Four times what a joint job takes, as a share of the strictest freshness: commits take about
        as long as jobs, and half of the time is left. At least a quarter of the member's own
        freshness, for earlier commits cost as much and nobody asked for them; at most half of it.
        While somebody works off a backlog, eight times, and at most all of it.
        """
        jobs, most = (8, 1.0) if self._backlog() else (4, 0.5)
        strictest = min((one.freshness for one in self._members()), default=member.freshness)
        share = min(most, max(LEAST_SHARE, jobs * self._joint_seconds / strictest))
        return min(max(LEAST_SECONDS, share * member.freshness), most * member.freshness)

    @override
    def _mine(self, waiting: QueuedPass) -> bool:
        return waiting.joint

    @override
    def _round(self) -> None:
        for member in self._members():
            if _has_else_to_do(member) and not self._looks.asking(member.flow.id):
                member.wake()
        if time.monotonic() >= self._next_look:
            self._look()
        with self._board:
            self._board.wait_for(self._all_here, GATHER_SECONDS)
        if together := self._waiting():
            self._together(together)

    def _all_here(self) -> bool:
        """A member with a backlog plans its next turn, which is not one of these."""
        coming = any(member.busy and member.joint for member in self._members())
        return self._stopped or not coming

    def _look(self) -> None:
        """Wakes the members with something new, and those whose source cannot be asked."""
        began = time.monotonic()
        due = {one.flow.id: one for one in self._members() if self._due(one, began)}
        sources = {
            name: OpenSource(one.paused.source, one.paused.session, (one.paused.after,))
            for name, one in due.items()
            if one.paused is not None
        }
        for name, ends in self._looks.ends_together(sources).items():
            if isinstance(ends, DataflowError):
                due[name].wake(copy(ends))  # others may raise it too
                continue
            recorder().health.note_progress()
            if any(ends.news):
                due[name].woken = time.monotonic()
                due[name].wake(news=True)
        self._next_look = began + LEAST_SECONDS

    def _due(self, member: LaneMember, now: float) -> bool:
        """One that is being asked is, until the answer is there."""
        pause = member.paused
        if pause is None or self._looks.asking(member.flow.id):
            return pause is not None
        rested = now - member.paused_at >= pause.seconds
        return rested and now - member.woken >= self.interval(member)

    def _together(self, members: Sequence[LaneMember]) -> None:
        """One job for as many slices as about one turn can take, the most urgent first."""
        tasks: dict[TaskReading, list[tuple[int, ...]]] = {}
        chosen: list[LaneMember] = []
        room = self._slices
        for member in members:
            waiting = member.begin_turn() if room > 0 else None
            if waiting is None or waiting.reading is None:
                continue
            tasks[waiting.reading] = waiting.reading.take()
            chosen.append(member)
            room -= _slices(tasks[waiting.reading])
        if not chosen:
            return
        began = time.monotonic()
        if not self._do(chosen, lambda spark: job.read(spark, tasks)):
            self._slices = max(_FEWEST_SLICES, self._slices / 2)
            return
        self._joint_seconds = time.monotonic() - began
        self._learn(sum(map(_slices, tasks.values())), full=room <= 0)
        for member in chosen:
            member.answer_when_over()

    def _learn(self, slices: int, *, full: bool) -> None:
        could = slices * AIM_SECONDS / max(self._joint_seconds, 0.01)
        if full or self._joint_seconds > AIM_SECONDS:
            self._slices = max(_FEWEST_SLICES, min(could, 2 * self._slices))


def _slices(shares: Sequence[Sequence[int]]) -> int:
    return sum(map(len, shares))


def _has_else_to_do(member: LaneMember) -> bool:
    pause = member.paused
    if pause is None:
        return False
    late = pause.most is not None and time.monotonic() - member.paused_at >= pause.most
    return late or pause.over()
