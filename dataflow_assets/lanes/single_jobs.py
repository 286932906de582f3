"""Jobs of one flow each: a pass over a frame of Spark's reader, or one that is tried again singly.

They run beside the joint jobs, one at a time; a large one aims at four seconds (`pace`).
"""

from __future__ import annotations

import time

from typing_extensions import override

from dataflow_assets.lanes.member import Member, Waiting
from dataflow_assets.lanes.turns import PARTS, Turns
from dataflow_assets.micro_batch import job
from dataflow_assets.micro_batch.job import Outcome, Planned, Reading

BACKLOG_SECONDS = 10.0  # after such a job in which another one is expected


class SingleJobs(Turns):
    """Gives turns to members whose pass is a job of its own."""

    name = "lane, single jobs"
    _last = float("-inf")

    @property
    def lately(self) -> bool:
        """Whether a part of a backlog is being read, or was a moment ago."""
        return time.monotonic() - self._last < BACKLOG_SECONDS

    @override
    def _mine(self, waiting: Waiting) -> bool:
        return not waiting.joint

    @override
    def _round(self) -> None:
        for member in self._waiting()[:1]:
            self._turn(member)

    def _turn(self, member: Member) -> None:
        waiting = member.begin_turn()
        if waiting is None:
            return
        if waiting.reading is not None:
            self._read(member, waiting.reading)
        else:
            self._read_frame(member, waiting.planned)

    def _read(self, member: Member, reading: Reading) -> None:
        asked = {reading: reading.take(PARTS)}
        if self._done([member], lambda spark: job.read(spark, asked)):
            member.singly = False
            member.answer_when_over()

    def _read_frame(self, member: Member, planned: Planned) -> None:
        full, began, outcomes = planned.work.span.full, time.monotonic(), list[Outcome]()
        self._last = float("inf") if full else self._last
        done = self._done([member], lambda spark: outcomes.append(job.run(spark, planned)))
        ended = time.monotonic()
        self._last = ended if full else self._last
        if not done:
            return
        if full:
            member.pace.took(ended - began)
        member.singly = False
        member.answer(*outcomes)
