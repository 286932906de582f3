"""One flow of a lane, driven by a thread of its own between its turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dataflow_assets.contracts import Limit
from dataflow_assets.errors import DataflowError, Locked, TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.lanes.events import Began, Ended, Event, Failing, Left, Recovered
from dataflow_assets.lanes.pace import PART, TURN_SECONDS, Pace
from dataflow_assets.lanes.queued_pass import QueuedPass
from dataflow_assets.micro_batch import job
from dataflow_assets.micro_batch.job import BatchOutcome, Planned
from dataflow_assets.micro_batch.tasks import CutOff, limit_jobs, within
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.host import NotStarted, Pause, RunHost
from dataflow_assets.runs.request import Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALONE_SECONDS = 120.0  # after which a job beside those of the lane is cut off: it has a core
AT_ONCE = 4  # members that prepare or stage with Spark jobs at the same time; others wait
GRACE_SECONDS = 10.0  # which it has when the flow is asked to end


@dataclass(frozen=True)
class Beside:
    """Bounds of the jobs that run beside the joint and single ones of a lane."""

    passes: threading.Lock = field(default_factory=threading.Lock)
    """Held by the member whose pass runs beside those of the others."""
    places: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(AT_ONCE))
    """One is held by each member that prepares or stages with Spark jobs."""


class LaneMember(RunHost):
    """The flow's host in the lane: here the flow's thread and those of the lane meet.

    A member is either paused, or has a pass that waits, or is awake and does something of its own.
    The flow's thread calls the methods of `Host`; the one that drives the lane calls `start`, `end`
    and `close`; those that give turns call the rest. Times are on the clock of `time.monotonic`, in
    seconds.
    """

    cadence = 0.0  # the lane gives the turns
    # Both cost as much as a small micro-batch. The lag is for people's eyes, and what the source is
    # told is read by the next process only.
    acknowledge_seconds = 30.0
    lag_seconds = 30.0

    def __init__(
        self,
        flow: Flow,
        request: Request,
        spark: Callable[[], SparkSession],
        board: threading.Condition,
        beside: Beside,
    ) -> None:
        """One member of a lane, not started yet.

        Args:
            flow: as its manifest says; an edited one is another member.
            request: the lane's, but for its time and its end.
            spark: gives the lane's live session; raises TransientError where there is none.
            board: the lane's; whoever gives turns is woken by it.
            beside: the lane's.
        """
        self.flow, self._session, self._board, self._beside = flow, spark, board, beside
        self._request = replace(request, seconds=float("inf"), stop=lambda: self._reason)
        self._reason: str | None = None
        self.freshness = flow.policies.freshness_seconds
        self._resume = threading.Event()
        self._error: DataflowError | None = None
        self._news = self._ill = False
        self._closed = False
        self._ending = float("inf")
        self.paused: Pause | None = None
        """Why it pauses, from `pause` to `wake`."""
        self.waiting: QueuedPass | None = None
        """Its pass, from `run` to `answer`."""
        self.joint = True
        """Its last pass was in a job of several."""
        self.singly = False
        """Its last pass was part of a job that died: the next one is a job of its own."""
        self.alone = False
        """A job of its own took too long or died, or its target is locked: its next jobs run beside
        those of the lane."""
        self.pace = Pace()
        self.paused_at = self.passed = time.monotonic()
        """When it paused last, and when its last pass was answered: who waits longest is first."""
        self.woken = float("-inf")
        """When a look last found something new for it."""
        self._thread = threading.Thread(target=lambda: None)
        self._put: Callable[[Event], None]

    def start(self, put: Callable[[Event], None]) -> None:
        """Drives the flow until it is asked to end, or fails; called once.

        `put` is called in the flow's thread with what happens: first `Began`, last `Ended` or
        `Left`.
        """
        self._put = put
        self._thread = threading.Thread(
            target=self._drive, name=f"flow {self.flow.id}", daemon=True
        )
        self._thread.start()

    def end(self, reason: str) -> None:
        """Asks the flow to end after its micro-batch, or now where that has not begun to read.

        May be called again; the first reason counts. Its event `Ended`, or `Left`, comes later.
        """
        self._ending = min(self._ending, time.monotonic())
        self._reason = self._reason or reason
        with self._board:
            waiting = self.waiting if self.waiting and not self.waiting.started else None
            self.waiting = None if waiting else self.waiting
        if waiting:
            waiting.answer(NotStarted())

    def close(self, error: DataflowError) -> None:
        """Nobody gives turns any more: `error` is what passes are told, now and later."""
        with self._board:
            self._closed = True
        self.answer(error)
        self.wake()

    @property
    def busy(self) -> bool:
        """It does something of its own, and may have a pass to run in a moment."""
        return self._thread.is_alive() and self.paused is None and self.waiting is None

    def begin_turn(self) -> QueuedPass | None:
        """Its pass, to be read now; None where nobody waits for it any more."""
        with self._board:
            if self.waiting is not None:
                self.waiting.started = True
            return self.waiting

    def answer(self, answer: BatchOutcome | BaseException) -> None:
        with self._board:
            waiting, self.waiting = self.waiting, None
        if waiting is not None:
            self.passed = time.monotonic()
            waiting.answer(answer)

    def answer_when_over(self) -> None:
        """Ends the wait for a pass that tasks read themselves, if all of it was read."""
        waiting = self.waiting
        if waiting is None or waiting.reading is None or not waiting.reading.over:
            return
        try:
            answer: BatchOutcome | Exception = waiting.reading.outcome()
        except Exception as error:  # noqa: BLE001 - the flow's own
            self.alone = isinstance(error, Locked)
            answer = error
        self.answer(answer)

    def wake(self, error: DataflowError | None = None, *, news: bool = False) -> None:
        """Ends its pause, with the error of its source if there is one."""
        with self._board:
            self.paused, self._error, self._news = None, error, news
        self._resume.set()

    @contextmanager
    def beside(self) -> Iterator[Callable[[], SparkSession]]:
        """The lane's session; its jobs are cut off as those are that run beside the lane's.

        The first use of the session waits until few others use theirs, and has the place until the
        block ends: a hundred such jobs at once would take each other's time, and be cut off.
        """
        with ExitStack() as stack:
            placed = False

            def session() -> SparkSession:
                nonlocal placed
                if not placed:
                    stack.enter_context(self._place())
                    placed = True
                return stack.enter_context(self._limited_session())

            yield session

    def limit(self, declared: Limit) -> Limit:
        """Returns what it reads in a turn of about four seconds; parts have a size of their own."""
        if self.flow.source.delivers == "messages":
            return self.pace.limit(declared)
        records, size = min(declared.records, PART.records), min(declared.bytes, PART.bytes)
        return Limit(records, size, declared)

    def run(self, planned: Planned) -> BatchOutcome:
        """Waits for a turn, and for the job."""
        if self.alone:
            self.joint = False
            return self._run_alone(planned)
        waiting = QueuedPass(planned, singly=self.singly)
        with self._board:
            if self._closed:
                raise TransientError("the lane has ended")
            if self._reason:
                raise NotStarted
            self.waiting, self.joint = waiting, waiting.joint
            self._board.notify_all()
        return waiting.outcome()

    def pause(self, pause: Pause) -> bool:
        """Until the lane has found something new; raises why its source cannot be asked."""
        with self._board:
            if self._closed:
                return False  # it was asked to end
            self._resume.clear()
            self.paused, self.paused_at = pause, time.monotonic()
            self._board.notify_all()
        self._resume.wait()
        if self._error is not None:
            raise self._error
        return self._news

    def failing(self, error: DataflowError, *, lasting: bool) -> None:
        self._ill = True
        self._put(Failing(self.flow, error, lasting))

    def note_recovery(self) -> None:
        if self._ill:
            self._ill = False
            self._put(Recovered(self.flow))

    def _run_alone(self, planned: Planned) -> BatchOutcome:
        """Beside the lane's jobs; once such a job ends in the time of a turn, it is among them."""
        while not self._beside.passes.acquire(timeout=1.0):
            if self._reason:
                raise NotStarted
        try:
            began = time.monotonic()
            with self._limited_session() as spark:
                outcome = job.run_in_one_task(spark, planned)
        finally:
            self._beside.passes.release()
        self.alone = time.monotonic() - began > TURN_SECONDS
        return outcome

    @contextmanager
    def _place(self) -> Iterator[None]:
        while not self._beside.places.acquire(timeout=1.0):
            if reason := self._overdue():
                raise CutOff(f"{reason}: it waited for the jobs of other flows")
        try:
            yield
        finally:
            self._beside.places.release()

    @contextmanager
    def _limited_session(self) -> Iterator[SparkSession]:
        spark, late = self._session(), within(ALONE_SECONDS)
        with limit_jobs(spark, lambda: late() or self._overdue()):
            yield spark

    def _overdue(self) -> str:
        if time.monotonic() - self._ending < GRACE_SECONDS:
            return ""
        return f"it did not end within {GRACE_SECONDS:g} seconds after the flow was asked to end"

    def _drive(self) -> None:
        put = self._put
        put(Began(self.flow))
        try:
            for report in drain(self.flow, self, self._request):
                put(report)
        except BaseException as error:  # noqa: BLE001 - told to whoever drives the lane
            put(Left(self.flow, error))
        else:
            put(Ended(self.flow, self._reason or "the flow came to its end"))
