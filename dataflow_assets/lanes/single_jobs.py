"""Jobs of one flow each: what is large, and what is tried again singly.

They run beside the joint jobs, one at a time; a large one aims at four seconds (`pace`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from typing_extensions import override

from dataflow_assets.contracts import PARTS
from dataflow_assets.lanes.member import LaneMember
from dataflow_assets.lanes.queued_pass import QueuedPass
from dataflow_assets.lanes.turns import Turns
from dataflow_assets.micro_batch import job
from dataflow_assets.micro_batch.job import BatchOutcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BACKLOG_SECONDS = 10.0  # after such a job in which another one is expected


class SingleJobs(Turns):
    """Gives turns to members whose pass is a job of its own; the most urgent one is first."""

    name = "lane, single jobs"
    _last = float("-inf")

    @property
    def lately(self) -> bool:
        """Returns whether a part of a backlog is being read, or was a moment ago."""
        return time.monotonic() - self._last < BACKLOG_SECONDS

    @override
    def _mine(self, waiting: QueuedPass) -> bool:
        return not waiting.joint

    @override
    def _round(self) -> None:
        for member in self._waiting()[:1]:
            self._turn(member)

    def _turn(self, member: LaneMember) -> None:
        waiting = member.begin_turn()
        if waiting is None:
            return
        full, before, outcomes = waiting.planned.work.span.full, self._last, list[BatchOutcome]()
        self._last, began = float("inf") if full else before, time.monotonic()
        done = self._do([member], lambda spark: outcomes.extend(_read(spark, waiting)))
        ended = time.monotonic()
        self._last = ended if full else before
        if not done:
            return
        member.singly = False
        member.passed = ended  # more of its turns may follow, behind those who wait for longer
        if full:
            member.pace.note_turn(ended - began)
        for outcome in outcomes:
            member.answer(outcome)
        member.answer_when_over()


def _read(spark: SparkSession, waiting: QueuedPass) -> list[BatchOutcome]:
    if waiting.reading is None:
        return [job.run(spark, waiting.planned)]
    job.read(spark, {waiting.reading: waiting.reading.take(PARTS)})
    return []
