"""One try at a run: its sessions, opened with a new epoch, and the loop over them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

from dataflow_assets import failpoints
from dataflow_assets.contracts import Limit, Positions, Receipt, Span, StagesWithSpark, local_now
from dataflow_assets.contracts.capabilities import FollowsBranches, HoldsLog
from dataflow_assets.errors import DataflowError, NewColumns, blame
from dataflow_assets.flow import Flow
from dataflow_assets.languages.promises import PreparesSpans
from dataflow_assets.micro_batch.branches import BranchSteps, PassBranch
from dataflow_assets.micro_batch.formatted import format_of
from dataflow_assets.micro_batch.fused import Pass
from dataflow_assets.micro_batch.job import BatchOutcome, Planned
from dataflow_assets.runs import new_columns
from dataflow_assets.runs.begin import begin
from dataflow_assets.runs.branch_turns import OpenBranch, Turn, lowest, nearer, next_turns
from dataflow_assets.runs.create_table import Creating
from dataflow_assets.runs.end_positions import check_reached, shows_less, visible
from dataflow_assets.runs.host import NotStarted, Pause, RunHost
from dataflow_assets.runs.open_branches import open_branches
from dataflow_assets.runs.report import Reporting
from dataflow_assets.runs.request import Report, Request
from dataflow_assets.runs.retries import RunProgress, SuspendedBranch

log = logging.getLogger(__name__)


class Reopen(Exception):
    """A branch that was suspended may come back: everything is opened again."""


class RunAttempt:
    """One try at a run: its sessions, opened with a new epoch, and the loop over them.

    The flow has its secrets in place.
    """

    def __init__(
        self, flow: Flow, host: RunHost, request: Request, progress: RunProgress, stack: ExitStack
    ) -> None:
        self._flow = flow
        self._request = request
        self._progress, self._metrics = progress, progress.metrics
        self._stack = stack
        self._format = format_of(flow)
        self._source = stack.enter_context(closing(self._flow.source.open(flow.id)))
        self._open_branches: list[OpenBranch] = []
        self._host = host
        self._committed = self._acknowledged = time.monotonic()
        self._until: Positions | None = None
        """What the run must not pass, records among that at which it stops. A first load may end
        behind it: the other branches follow in the next run."""
        self._reporting = Reporting(self._flow, self._source, progress, host.lag_seconds)
        self._creating = Creating(self._flow, self._source, self._format)

    def reports(self) -> Iterator[Report]:
        """A report for each commit and branch, and one last for each branch."""
        end = None if self._progress.continuous else self._end()
        until = self._until = self._progress.bounds(end, self._source.end)
        if (sink := self._flow.policies.rejects.sink) is not None:
            sink.error_store().prepare()
        self._open_branches = open_branches(
            self._flow, self._source, self._progress, self._request, self._stack
        )
        if isinstance(self._source, FollowsBranches):
            self._source.begin_after(
                [one.session.checkpoint.positions for one in self._open_branches]
            )
        reason = ""
        while not reason:
            turn, span = self._next(until)
            if turn.alone and span.empty:
                self._step_on(turn, span)
            elif self._due(span):
                with suppress(NotStarted):
                    yield from self._micro_batch(span, turn)
            reason = self._reason_to_end(span, turn, until)
        if self._acknowledge_in is not None:
            self._acknowledge()
        log.info("flow %s: %s ends: %s", self._flow.id, self._request.run, reason)
        for opened in self._open_branches:
            yield self._reporting.last(opened, reason)
        self._reporting.judge()  # an attempt that failed may have committed more than it reported

    @property
    def _complete(self) -> bool:
        return len(self._open_branches) == len(self._flow.branches)

    @property
    def _taking_part(self) -> set[str]:
        return {opened.branch.id for opened in self._open_branches}

    @property
    def _returning_branches(self) -> list[SuspendedBranch]:
        """Branches that the next attempt may open as well."""
        return self._progress.returning(self._taking_part)

    def _lowest(self) -> Positions:
        return lowest([one.positions for one in self._open_branches], self._source.lags)

    def _next(self, until: Positions | None) -> tuple[Turn, Span]:
        for turn in self._turns():
            bound = nearer(turn.until, until, self._source.lags)
            with turn.blame(self._open_branches), self._metrics.phase("plan"):
                span = self._source.plan(turn.after, self._limit, bound)
            self._metrics.note_look(span)
            if not span.empty:
                break
        return turn, replace(span, planned=turn.after)

    @property
    def _limit(self) -> Limit:
        return self._host.limit(self._flow.policies.limit)

    def _turns(self) -> list[Turn]:
        return next_turns(self._open_branches, self._until or {}, self._source.lags)

    def _end(self) -> Positions:
        """The end that the run's first attempt saw; another one's only of another topic."""
        identity, until = self._source.identity, self._request.until
        if identity not in self._progress.ends:
            self._progress.ends[identity] = visible(self._flow, self._source, until)
        return self._progress.ends[identity]

    def _reason_to_end(self, span: Span, turn: Turn, until: Positions | None) -> str:
        reason = self._request.stop()
        if reason:
            return reason
        if self._progress.over:
            return "its time is up"
        drained = until is not None and span.empty and not turn.alone
        if self._returning(wait=drained):
            return ""
        if until is not None:
            return self._end_of_drain(until) if drained and not self._makes_room() else ""
        if span.empty:
            self._progress.note_progress(self._taking_part)
            if self._complete:
                self._host.note_recovery()
        if not span.full:
            # Until the source may be asked again, or something else is to be done than to
            # acknowledge. A source whose interval is not over must not be asked, and a plan may
            # read a query whole.
            self._acknowledge_when_due()
            while (
                not self._rest() and self._acknowledge_in is not None and self._acknowledge_in <= 0
            ):
                self._acknowledge()
        return ""

    def _rest(self) -> bool:
        source, session = self._flow.source, self._source
        backs = [branch.back - time.monotonic() for branch in self._returning_branches]
        due = [] if self._acknowledge_in is None else [self._acknowledge_in]
        most = min([*backs, *due], default=None)
        return self._host.pause(
            Pause(source, session, self._lowest(), source.traits.poll_seconds, most, self._is_over)
        )

    def _is_over(self) -> bool:
        return self._progress.over or bool(self._request.stop())

    def _returning(self, *, wait: bool) -> bool:
        """True while there is nothing to do but to wait for a branch that was suspended."""
        returning = self._returning_branches
        if wait and returning:
            soonest = min(branch.back for branch in returning) - time.monotonic()
            time.sleep(min(max(0.0, soonest), 1.0))  # the run may be asked to end meanwhile
        if any(time.monotonic() >= branch.back for branch in returning):
            raise Reopen
        return wait and bool(returning)

    def _makes_room(self) -> bool:
        if not (self._complete and self._holds):
            return False
        self._acknowledge()
        return not self._holds

    @property
    def _holds(self) -> bool:
        return isinstance(self._source, HoldsLog) and self._source.holds

    def _end_of_drain(self, until: Positions) -> str:
        places = [opened.positions for opened in self._open_branches]
        check_reached(self._flow, self._source, until, places)
        return f"read up to {self._request.until or 'the newest record at start'}"

    def _due(self, span: Span) -> bool:
        """A full span is due at once, any other when the last commit is long enough ago."""
        if span.empty:
            return False
        if not self._progress.continuous or span.full:
            return True
        bounds = (opened.branch.sink.traits.flush_seconds for opened in self._open_branches)
        return time.monotonic() - self._committed >= max(self._host.cadence, *bounds)

    def _step_on(self, turn: Turn, span: Span) -> None:
        """A branch that knows nothing of a partition where others stand at its beginning."""
        for opened in turn.branches:
            with blame(opened.branch.id):
                opened.session.begin(span)
        again = self._turns()[0]
        if again.alone and dict(again.after) == dict(turn.after):
            raise shows_less(self._flow, turn.until or {}, turn.after)

    def _micro_batch(self, span: Span, turn: Turn) -> Iterator[Report]:
        ready: Sequence[OpenBranch]
        with self._metrics.phase("begin"):
            if isinstance(self._source, PreparesSpans):
                with self._host.beside() as spark:
                    span = self._source.prepare(span, spark)
            ready = [one for one in turn.branches if self._has_table(one, span)]
            span, ready = begin(span, ready, self._source, self._limit)
        failpoints.reach("drain.begun")
        with self._metrics.phase("pass"):
            done = self._read(span, ready) if ready else BatchOutcome(span, {})
        failpoints.reach("drain.passed")
        seconds = time.monotonic() - self._committed
        for opened in ready:
            yield self._finish(opened, done.span, done.receipts[opened.branch.stored_id], seconds)
        self._committed = time.monotonic()
        self._metrics.note_micro_batch(done.counts)
        failpoints.reach("drain.finished")
        self._acknowledge_when_due()
        self._reporting.judge()

    def _read(self, span: Span, ready: Sequence[OpenBranch]) -> BatchOutcome:
        """The pass. Where a target lacks columns and gets them, all is read again by a new epoch.

        The span is recorded, and parts of the branch that are stored are not read again: the others
        are the same parts.
        """
        try:
            return self._host.run(Planned(self._pass(span, ready), self._source))
        except DataflowError as error:
            # Tasks know a branch by what its Secrets hold, the run by their names.
            ids = {opened.branch.stored_id: opened.branch.id for opened in ready}
            error.branch = ids.get(error.branch or "", error.branch)
            if not isinstance(error, NewColumns):
                raise
            new_columns.meet(self._flow, error, ready)
            raise Reopen from error

    def _has_table(self, opened: OpenBranch, span: Span) -> bool:
        with self._host.beside() as spark:
            return self._creating.has_table(opened, span, spark)

    def _finish(
        self, opened: OpenBranch, span: Span, receipts: Sequence[Receipt], seconds: float
    ) -> Report:
        place = {piece.partition: index for index, piece in enumerate(span.slices)}
        ordered = sorted(receipts, key=lambda receipt: place[receipt.partition])
        with blame(opened.branch.id), self._metrics.phase("finish"):
            if isinstance(opened.session, StagesWithSpark):
                with self._host.beside() as spark:
                    opened.session.stage(span, ordered, spark)
            opened.session.finish(span, ordered, self._source)
        with blame(opened.branch.id):
            return self._reporting.commit(opened, seconds)

    @property
    def _acknowledge_in(self) -> float | None:
        """Seconds until the source is to be told what every branch has; None: it need not be.

        What a suspended branch has is not known here.
        """
        if not self._complete or self._acknowledged >= self._committed:
            return None
        seconds = 0.0 if self._holds else self._host.acknowledge_seconds
        return self._acknowledged + seconds - time.monotonic()

    def _acknowledge_when_due(self) -> None:
        seconds = self._acknowledge_in
        if seconds is not None and seconds <= 0:
            self._acknowledge()

    def _acknowledge(self) -> None:
        self._source.acknowledge(self._lowest())
        self._acknowledged = time.monotonic()

    def _pass(self, span: Span, ready: Sequence[OpenBranch]) -> Pass:
        rule = self._flow.source.traits.new_columns
        branches = tuple(
            PassBranch(one.branch.sink, one.session.ticket(), one.branch.routes, rule)
            for one in ready
        )
        percent = self._flow.policies.max_rejected_percent
        steps = BranchSteps.of(
            self._flow, span.at or local_now(), [branch.shape() for branch in branches]
        )
        most = self._limit.bytes
        return Pass(self._flow.source, span, branches, percent, steps, most, format=self._format)
