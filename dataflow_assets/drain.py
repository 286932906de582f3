"""The loop: plan, begin, pass, finish, release, report; until the end that was visible at start.

One call is one run. A TransientError closes everything and tries again from the checkpoint with a
new epoch, so that what was left behind by the failed attempt can commit nothing any more.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from dataflow_assets import failpoints, fused
from dataflow_assets.contracts import (
    Checkpoint,
    Lag,
    Limit,
    Position,
    Positions,
    Receipt,
    SinkSession,
    Span,
    Totals,
    local_now,
)
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.messages import Lane, Steps
from dataflow_assets.order import Order, Report, Start
from dataflow_assets.starting import before, settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SAMPLE = Limit(records=10_000)
IDLE_SECONDS = 0.25  # between two looks at a source that has nothing new
CADENCE_SECONDS = 1.0  # least time between commits of spans that are not full
LAG_SECONDS = 5.0  # how often the age of the oldest unread record is asked for


def drain(flow: Flow, spark: Callable[[], SparkSession], order: Order) -> Iterator[Report]:
    """Runs the flow; yields a Report per commit and branch, and one last per branch.

    `spark` gives a live session each time it is called. Raises TransientError once the patience is
    used up, PermanentError and TakenOver at once; what was reported is committed either way.
    """
    failpoints.arm(failpoints.from_environment())
    progress = _Progress(order)
    log.info("flow %s: %s begins", flow.id, order.run)
    while True:
        try:
            with ExitStack() as stack:
                for report in _Attempt(flow, spark, order, progress, stack).reports():
                    progress.made()
                    yield report
        except TransientError as error:
            if order.stop():
                raise  # whoever asked to stop should not have to wait for the outage to end
            progress.wait_or_raise(flow, error)
            order = replace(order, start=Start()) if progress.started else order
        else:
            return


class _Progress:
    """What outlives an attempt: the run's deadline, its patience, and what was reported."""

    def __init__(self, order: Order) -> None:
        self._patience = order.patience
        self._deadline = None if order.seconds is None else time.monotonic() + order.seconds
        self._bounded = order.until is not None
        self._since = time.monotonic()
        self._wait = order.patience.first_wait
        self.started = False
        """True once the start position of the order is stored."""
        self.ends: dict[str, Positions] = {}
        """By identity of the source: the end that the run's first attempt saw, or was given."""
        self.reported: dict[str, Totals] = {}
        """By branch: the totals of its last report, so that a failed attempt's commits count."""
        self.done = Totals()
        """What the run's reports add up to: the share of rejected records is of the run."""

    @property
    def continuous(self) -> bool:
        return self._deadline is not None and not self._bounded

    @property
    def over(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def made(self) -> None:
        self._since = time.monotonic()
        self._wait = self._patience.first_wait

    def wait_or_raise(self, flow: Flow, error: TransientError) -> None:
        tried = time.monotonic() - self._since
        if tried >= self._patience.seconds or self.over:
            raise TransientError(
                f"flow {flow.id}: gave up after {tried:.0f} s without progress: {error}. Nothing "
                f"is lost: the next run continues from the checkpoint"
            ) from error
        log.warning("flow %s: %s; trying again in %.1f s", flow.id, error, self._wait)
        time.sleep(self._wait * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        self._wait = min(2 * self._wait, self._patience.longest_wait)


class _Attempt:
    """One try at a run: its sessions, opened with a new epoch, and the loop over them."""

    def __init__(
        self,
        flow: Flow,
        spark: Callable[[], SparkSession],
        order: Order,
        progress: _Progress,
        stack: ExitStack,
    ) -> None:
        self._flow = flow.resolved()
        self._order = order
        self._progress = progress
        self._source = stack.enter_context(closing(self._flow.source.open(flow.id)))
        self._sinks = [
            (branch, stack.enter_context(closing(self._open(branch))))
            for branch in self._flow.branches
        ]
        self._new_session = spark
        self._committed = time.monotonic()
        self._lag: Lag | None = None
        self._lag_taken = 0.0

    @cached_property
    def _spark(self) -> SparkSession:
        """Made when it is first needed: a run that finds nothing new needs none."""
        return self._new_session()

    def _open(self, branch: Branch) -> SinkSession:
        target = replace(self._flow.target(branch), source_id=self._source.identity)
        return branch.sink.open(target, self._order.run)

    def reports(self) -> Iterator[Report]:
        until = None if self._progress.continuous else self._end()
        for branch, session in self._sinks:
            self._progress.reported.setdefault(branch.id, session.checkpoint.totals)
            settle(self._flow, branch, self._source, session, self._order.start)
        self._progress.started = True
        reason = ""
        while not reason:
            span = self._source.plan(self._positions(), self._flow.policies.limit, until)
            if self._due(span):
                yield from self._micro_batch(span)
            reason = self._reason_to_end(span, until)
        log.info("flow %s: %s ends: %s", self._flow.id, self._order.run, reason)
        for branch, session in self._sinks:
            report = self._report(branch, session.checkpoint, 0.0, fresh=True)
            report = replace(report, last=True, reason=reason, schema=session.schema())
            yield replace(report, table_rows=session.row_count())
        self._judge()  # an attempt that failed may have committed more than it reported

    def _end(self) -> Positions:
        """The end that the run's first attempt saw; another one's only of another topic."""
        identity, until = self._source.identity, self._order.until
        if identity not in self._progress.ends:
            given = before(self._flow, self._source, until) if until else None
            self._progress.ends[identity] = given or self._source.ends()
        return self._progress.ends[identity]

    def _reason_to_end(self, span: Span, until: Positions | None) -> str:
        asked = self._order.stop()
        if asked:
            return asked
        if self._progress.over:
            return "its time is up"
        if until is not None:
            return self._drained(until) if span.empty else ""
        if not self._due(span):
            time.sleep(IDLE_SECONDS)
        return ""

    def _drained(self, until: Positions) -> str:
        """Nothing more to read is not yet the end: a broker may show less for a while."""
        positions = self._positions()
        if all(_reached(positions.get(partition), end) for partition, end in until.items()):
            given = self._order.until
            return f"drained to {given or 'the end that was visible at start'}"
        raise TransientError(
            f"{self._flow.source_address} shows less than when the run began: "
            f"its end was {dict(until)}, and {dict(positions)} is as far as it can be read"
        )

    def _due(self, span: Span) -> bool:
        """A full span is due at once, any other when the last commit is long enough ago."""
        if span.empty:
            return False
        if not self._progress.continuous or span.full:
            return True
        bounds = (branch.sink.flush_seconds() for branch, _ in self._sinks)
        return time.monotonic() - self._committed >= max(CADENCE_SECONDS, *bounds)

    def _micro_batch(self, span: Span) -> Iterator[Report]:
        for branch, session in self._sinks:
            if session.schema() is None:
                self._create(branch, session)
        for _, session in self._sinks:
            span = session.begin(span)
        failpoints.reach("drain.begun")
        receipts = fused.run(self._spark, self._source, span, self._pass(span))
        failpoints.reach("drain.passed")
        seconds = time.monotonic() - self._committed
        for branch, session in self._sinks:
            checkpoint = session.finish(span, _by_partition(receipts[branch.id]), self._source)
            report = self._report(branch, checkpoint, seconds)
            yield replace(report, table_rows=session.row_count())
        self._committed = time.monotonic()
        failpoints.reach("drain.finished")
        self._source.release(self._positions())
        self._judge()

    def _pass(self, span: Span) -> fused.Pass:
        lanes = tuple(
            Lane(branch.sink, session.ticket(), branch.routes) for branch, session in self._sinks
        )
        percent = self._flow.policies.max_rejected_percent
        steps = Steps.of(self._flow, local_now())
        return fused.Pass(self._flow.source, span, lanes, percent, steps)

    def _create(self, branch: Branch, session: SinkSession) -> None:
        """Makes the missing table from the types of the first records."""
        span = self._source.plan(self._positions(), SAMPLE)
        steps = Steps.of(self._flow, local_now())
        work = fused.Sampler(self._flow.source, span, steps, branch.sink, branch.routes)
        session.create(fused.sample(self._spark, self._source, work).schema)

    def _positions(self) -> Positions:
        """The lowest position of all branches: each skips what its own checkpoint covers."""
        lowest: dict[str, Position] = {}
        for _, session in self._sinks:
            for partition, position in session.checkpoint.positions.items():
                known = lowest.setdefault(partition, position)
                if isinstance(position, int) and isinstance(known, int) and position < known:
                    lowest[partition] = position
        return lowest

    def _report(
        self, branch: Branch, checkpoint: Checkpoint, seconds: float, *, fresh: bool = False
    ) -> Report:
        delta = checkpoint.totals - self._progress.reported[branch.id]
        self._progress.reported[branch.id] = checkpoint.totals
        self._progress.done += delta
        now = time.monotonic()
        if self._lag is None or fresh or now - self._lag_taken >= LAG_SECONDS:
            self._lag, self._lag_taken = self._source.lag(checkpoint.positions), now
        lag = _moved(self._lag, checkpoint.positions)
        return Report(self._flow.id, branch, branch.address, checkpoint, delta, lag, seconds)

    def _judge(self) -> None:
        done = self._progress.done
        consumed, most = done.rows + done.rejected, self._flow.policies.max_rejected_percent
        if not fused.too_many(done.rejected, consumed, most):
            return
        raise PermanentError(
            f"flow {self._flow.id}: {done.rejected} of {consumed} records of this run were "
            f"rejected, more than maxRejectedPercent {most:g}; they stand in the table of rejected "
            f"records. Mend the table or the producer, or raise the limit"
        )


def _reached(position: Position | None, end: Position) -> bool:
    if isinstance(position, int) and isinstance(end, int):
        return position >= end
    return position == end


def _moved(lag: Lag, positions: Positions) -> Lag:
    """The lag with its records counted again from positions that have moved since."""
    ends = {p: end for p, end in lag.ends.items() if isinstance(end, int)}
    if not ends:
        return lag
    waiting = (max(0, end - int(positions.get(p, end))) for p, end in ends.items())
    return replace(lag, records=sum(waiting))


def _by_partition(receipts: list[Receipt]) -> list[Receipt]:
    return sorted(receipts, key=lambda receipt: receipt.partition)
