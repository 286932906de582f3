"""A pass that waits in a lane for its turn, and the answer to it."""

from __future__ import annotations

import threading

from dataflow_assets.contracts import PARTS
from dataflow_assets.micro_batch.job import BatchOutcome, Planned, TaskReading


class QueuedPass:
    """The pass of one micro-batch, from the request of its flow's thread to the answer.

    Made and waited for by the flow's thread; begun and answered by the one that gives its turns, or
    answered by whoever ends the flow.
    """

    def __init__(self, planned: Planned, *, singly: bool) -> None:
        """`singly`: in a job of its own, although its tasks read themselves."""
        self.planned = planned
        self.reading = TaskReading(planned.work) if planned.in_tasks else None
        """What its tasks have read so far; None where Spark's reader does."""
        self.joint = self.reading is not None and not singly and _is_small(planned)
        """Among others in a joint job; else in jobs of its own."""
        self.started = False
        """A job reads it, or is about to: its flow cannot end any more before it has."""
        self._answered = threading.Event()
        self._answer: BatchOutcome | BaseException | None = None

    def answer(self, answer: BatchOutcome | BaseException) -> None:
        """Ends the wait: what was read, or why nothing was. Called once, by any thread."""
        self._answer = answer
        self._answered.set()

    def outcome(self) -> BatchOutcome:
        """Waits for the answer, for any time; raises the error if it is one."""
        self._answered.wait()
        if isinstance(self._answer, BatchOutcome):
            return self._answer
        assert self._answer is not None  # noqa: S101 - it was answered
        raise self._answer


def _is_small(planned: Planned) -> bool:
    """Returns whether a pass that tasks read themselves may be one of many in a job.

    A session says so of messages. Of a table it is one turn's parts, behind which nothing waits; a
    query that is read as a whole is never small.
    """
    span = planned.work.span
    if planned.work.source.delivers == "messages":
        return planned.reader == "driver"
    return planned.work.source.traits.incremental and not span.full and len(span.slices) <= PARTS
