"""The loop: plan, begin, pass, finish, release, report; until the end that was visible at start.

One call is one run. A TransientError closes everything and tries again from the checkpoint with a
new epoch, so that what was left behind by the failed attempt can commit nothing any more. A branch
whose sink fails is set aside while the others go on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from dataflow_assets import failpoints, fused
from dataflow_assets.contracts import (
    Lag,
    Limit,
    Position,
    Positions,
    Receipt,
    Span,
    local_now,
)
from dataflow_assets.errors import (
    DataflowError,
    Held,
    PermanentError,
    TransientError,
    blamed,
)
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.messages import Lane, Steps
from dataflow_assets.order import Order, Report
from dataflow_assets.progress import Progress
from dataflow_assets.starting import before, settle
from dataflow_assets.turns import Standing, Turn, lowest, nearer, next_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SAMPLE = Limit(records=10_000)
IDLE_SECONDS = 0.25  # between two looks at a source that has nothing new
CADENCE_SECONDS = 1.0  # least time between commits of spans that are not full
LAG_SECONDS = 5.0  # how often the age of the oldest unread record is asked for


class _Reopen(Exception):
    """A branch that was set aside may come back: everything is opened anew."""


def drain(flow: Flow, spark: Callable[[], SparkSession], order: Order) -> Iterator[Report]:
    """Runs the flow; yields a Report per commit and branch, and one last per branch.

    `spark` gives a live session each time it is called. Raises TransientError once the patience is
    used up, PermanentError and TakenOver at once; what was reported is committed either way. A
    branch that failed while others went on ends the run with its error only after them.
    """
    failpoints.arm(failpoints.from_environment())
    progress = Progress(order)
    log.info("flow %s: %s begins", flow.id, order.run)
    while True:
        try:
            with ExitStack() as stack:
                for report in _Attempt(flow, spark, order, progress, stack).reports():
                    progress.made(report)
                    yield report
        except _Reopen:
            continue
        except DataflowError as error:
            _meet(flow, order, progress, error)
        else:
            progress.raise_held()
            progress.raise_aside(flow)
            return


def _meet(flow: Flow, order: Order, progress: Progress, error: DataflowError) -> None:
    """Returns when another attempt may succeed; else raises."""
    if isinstance(error, Held):
        progress.hold(error)
    elif isinstance(error, TransientError) and order.stop():
        raise error  # whoever asked to stop should not have to wait for the outage to end
    elif progress.set_aside(flow, error):
        return
    elif isinstance(error, TransientError):
        progress.wait_or_raise(flow, error)
    else:
        raise error


class _Attempt:
    """One try at a run: its sessions, opened with a new epoch, and the loop over them."""

    def __init__(
        self,
        flow: Flow,
        spark: Callable[[], SparkSession],
        order: Order,
        progress: Progress,
        stack: ExitStack,
    ) -> None:
        self._flow = flow.resolved()
        self._order = order
        self._progress = progress
        self._stack = stack
        self._source = stack.enter_context(closing(self._flow.source.open(flow.id)))
        self._standings: list[Standing] = []
        self._new_session = spark
        self._committed = time.monotonic()
        self._lags: dict[str, tuple[float, Lag]] = {}

    @cached_property
    def _spark(self) -> SparkSession:
        """Made when it is first needed: a run that finds nothing new needs none."""
        return self._new_session()

    def reports(self) -> Iterator[Report]:
        ordered = None if self._progress.continuous else self._end()
        until = self._progress.bounds(ordered, self._source.ends)
        self._prepare_errors()
        self._open()
        reason = ""
        while not reason:
            turn = next_turn(self._standings, self._progress.stops)
            bound = nearer(turn.until, until)
            span = self._source.plan(turn.after, self._flow.policies.limit, bound)
            if turn.alone and span.empty:
                self._step_on(turn, span)
            elif self._due(span):
                yield from self._micro_batch(span, turn)
            reason = self._reason_to_end(span, turn, until)
        log.info("flow %s: %s ends: %s", self._flow.id, self._order.run, reason)
        for standing in self._standings:
            yield self._last_report(standing, reason)
        self._judge()  # an attempt that failed may have committed more than it reported

    def _prepare_errors(self) -> None:
        sink = self._flow.policies.rejects.sink
        if sink is not None:
            sink.error_store().prepare()

    def _open(self) -> None:
        """Opens every branch that is not set aside; one that fails is, unless it is the last."""
        for branch in self._flow.branches:
            if not self._progress.open_for(branch):
                continue
            with blamed(branch.id):
                target = replace(self._flow.target(branch), source_id=self._source.identity)
                opened = branch.sink.open(target, self._order.run)
                session = self._stack.enter_context(closing(opened))
                branch.sink.shape(session.schema())  # a table that does not fit is told at once
            self._progress.reported.setdefault(branch.id, session.checkpoint.totals)
            settle(self._flow, branch, self._source, session, self._progress.start(branch))
            self._progress.settled(branch)
            self._standings.append(Standing(branch, session))

    def _end(self) -> Positions:
        """The end that the run's first attempt saw; another one's only of another topic."""
        identity, until = self._source.identity, self._order.until
        if identity not in self._progress.ends:
            given = before(self._flow, self._source, until) if until else None
            self._progress.ends[identity] = given or self._source.ends()
        return self._progress.ends[identity]

    def _reason_to_end(self, span: Span, turn: Turn, until: Positions | None) -> str:
        asked = self._order.stop()
        if asked:
            return asked
        if self._progress.over:
            return "its time is up"
        self._look_aside(wait=until is not None and span.empty and not turn.alone)
        if until is not None:
            return self._drained(until) if span.empty and not turn.alone else ""
        if not self._due(span):
            time.sleep(IDLE_SECONDS)
        return ""

    def _look_aside(self, *, wait: bool) -> None:
        """Takes branches back whose time has come; with nothing else to do it waits for them."""
        returning = self._progress.returning()
        if wait and returning:
            time.sleep(max(0.0, min(aside.back for aside in returning) - time.monotonic()))
        if any(time.monotonic() >= aside.back for aside in returning):
            raise _Reopen

    def _drained(self, until: Positions) -> str:
        """Nothing more to read is not yet the end: a broker may show less for a while."""
        positions = lowest(self._standings)
        if all(_reached(positions.get(partition), end) for partition, end in until.items()):
            given = self._order.until
            return f"drained to {given or 'the end that was visible at start'}"
        raise self._less(until, positions)

    def _less(self, until: Positions, positions: Positions) -> TransientError:
        return TransientError(
            f"{self._flow.source_address} shows less than when the run began: "
            f"its end was {dict(until)}, and {dict(positions)} is as far as it can be read"
        )

    def _due(self, span: Span) -> bool:
        """A full span is due at once, any other when the last commit is long enough ago."""
        if span.empty:
            return False
        if not self._progress.continuous or span.full:
            return True
        bounds = (standing.branch.sink.flush_seconds() for standing in self._standings)
        return time.monotonic() - self._committed >= max(CADENCE_SECONDS, *bounds)

    def _step_on(self, turn: Turn, span: Span) -> None:
        """A branch that knows nothing of a partition where others stand at its beginning."""
        for standing in turn.standings:
            with blamed(standing.branch.id):
                standing.session.begin(span)
        again = next_turn(self._standings, self._progress.stops)
        if again.alone and dict(again.after) == dict(turn.after):
            raise self._less(turn.until or {}, turn.after)

    def _micro_batch(self, span: Span, turn: Turn) -> Iterator[Report]:
        ready = [standing for standing in turn.standings if self._has_table(standing, span)]
        for standing in turn.standings:
            if standing not in ready:
                self._pass_by(standing, span)
        for standing in ready:
            with blamed(standing.branch.id):
                span = standing.session.begin(span)
        failpoints.reach("drain.begun")
        work = self._pass(span, ready)
        receipts = fused.run(self._spark, self._source, span, work) if ready else {}
        failpoints.reach("drain.passed")
        seconds = time.monotonic() - self._committed
        for standing in ready:
            yield self._finished(standing, span, receipts[standing.branch.id], seconds)
        self._committed = time.monotonic()
        failpoints.reach("drain.finished")
        self._release()
        self._judge()

    def _finished(
        self, standing: Standing, span: Span, receipts: Sequence[Receipt], seconds: float
    ) -> Report:
        ordered = sorted(receipts, key=lambda receipt: receipt.partition)
        with blamed(standing.branch.id):
            standing.session.finish(span, ordered, self._source)
            report = self._report(standing, seconds)
            return replace(report, table_rows=standing.session.row_count())

    def _release(self) -> None:
        """Tells the source what every branch has; what one set aside has is not known here."""
        if len(self._standings) == len(self._flow.branches):
            self._source.release(lowest(self._standings))

    def _pass(self, span: Span, ready: Sequence[Standing]) -> fused.Pass:
        lanes = tuple(
            Lane(one.branch.sink, one.session.ticket(), one.branch.routes) for one in ready
        )
        percent = self._flow.policies.max_rejected_percent
        steps = Steps.of(self._flow, local_now(), [lane.shape() for lane in lanes])
        return fused.Pass(self._flow.source, span, lanes, percent, steps)

    def _has_table(self, standing: Standing, span: Span) -> bool:
        """Makes a missing table from the first records; False when none gets there yet."""
        if standing.session.schema() is not None:
            return True
        first = self._source.plan(span.after, SAMPLE, span.upto)
        with blamed(standing.branch.id):
            found = self._sample(standing, first)
            if not found.records:
                found = self._sample(standing, span)
            if not found.records and self._flow.by_record:
                return False
            standing.session.create(found.schema)
        return True

    def _sample(self, standing: Standing, span: Span) -> fused.Sample:
        branch = standing.branch
        steps = Steps.of(self._flow, local_now(), [branch.sink.shape(None)])
        work = fused.Sampler(self._flow.source, span, steps, branch.sink, branch.routes)
        return fused.sample(self._spark, self._source, work)

    def _pass_by(self, standing: Standing, span: Span) -> None:
        """Moves the start of a branch without a table over a span that holds nothing for it."""
        upto = self._source.fold({**standing.positions, **span.upto})
        with blamed(standing.branch.id):
            standing.session.restart(upto, self._source.identity)

    def _last_report(self, standing: Standing, reason: str) -> Report:
        session = standing.session
        self._lags.pop(standing.branch.id, None)
        report = self._report(standing, 0.0)
        report = replace(report, last=True, reason=reason, schema=session.schema())
        return replace(report, table_rows=session.row_count())

    def _report(self, standing: Standing, seconds: float) -> Report:
        branch, checkpoint = standing.branch, standing.session.checkpoint
        delta = checkpoint.totals - self._progress.reported[branch.id]
        self._progress.reported[branch.id] = checkpoint.totals
        self._progress.totals += delta
        lag = _moved(self._lag(branch, checkpoint.positions), checkpoint.positions)
        return Report(self._flow.id, branch, branch.address, checkpoint, delta, lag, seconds)

    def _lag(self, branch: Branch, positions: Positions) -> Lag:
        """Asked for every few seconds only: the age of a record costs a read."""
        now = time.monotonic()
        taken, lag = self._lags.get(branch.id, (0.0, None))
        if lag is None or now - taken >= LAG_SECONDS:
            lag = self._source.lag(positions)
            self._lags[branch.id] = (now, lag)
        return lag

    def _judge(self) -> None:
        done = self._progress.totals
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
