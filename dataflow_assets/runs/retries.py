"""State that outlives an attempt: the run's time, its patience, the suspended branches."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from dataflow_assets.contracts import PART, Checkpoint, Positions, Totals
from dataflow_assets.errors import DataflowError, PermanentError, Stopped, TakenOver, TransientError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.runs.flow_metrics import FlowMetrics
from dataflow_assets.runs.request import Request, Start

log = logging.getLogger(__name__)

LONGEST_SUSPENSION = 60.0  # seconds until a branch that failed is tried again, at most
STEP_SECONDS = 0.5  # in which a run that waits hears that it is to end


@dataclass
class SuspendedBranch:
    """A branch whose sink failed while the others go on."""

    error: DataflowError
    wait: float
    since: float
    back: float
    opened: bool = False
    """It has come back: it was opened since, and may only have nothing to commit yet."""

    @property
    def for_good(self) -> bool:
        """Trying again will not help in this run."""
        return isinstance(self.error, PermanentError)


class RunProgress:
    """One run, over all its attempts."""

    def __init__(self, request: Request, metrics: FlowMetrics) -> None:
        self._request, self.metrics = request, metrics
        self._patience = request.patience
        self._deadline = None if request.seconds is None else time.monotonic() + request.seconds
        self._failing: float | None = None
        self._wait = request.patience.first_wait
        self._suspended: dict[str, SuspendedBranch] = {}
        self.settled: set[str] = set()
        """Ids of branches whose beginning is stored."""
        self.ends: dict[str, Positions] = {}
        """By identity of the source: the end that was visible when the run first saw it."""
        self.reported: dict[str, Totals] = {}
        """By branch: the totals of its last report, so that a failed attempt's commits count."""
        self.epochs: dict[str, int] = {}
        """By branch: the epoch with which it was opened last."""
        self.stopped: dict[str, Stopped] = {}
        """By partition: the record at which the flow stops."""
        self.totals = Totals()
        """Of all reports of the run."""

    @property
    def continuous(self) -> bool:
        """The run goes on until its time is up; one that reads up to a time has an end."""
        return self._deadline is not None and self._request.until is None

    @property
    def over(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def start(self, branch: Branch) -> Start:
        """The branch's beginning: as requested the first time, then from its checkpoint."""
        return Start(resumed=True) if branch.id in self.settled else self._request.start

    def note_open(self, branch: Branch, checkpoint: Checkpoint) -> None:
        """The branch takes part in this attempt."""
        self.reported.setdefault(branch.id, checkpoint.totals)
        self.epochs[branch.id] = checkpoint.epoch
        if branch.id in self._suspended:
            self._suspended[branch.id].opened = True

    def note_progress(self, branches: Iterable[str]) -> None:
        """These branches have committed, or have nothing to do: patience starts over."""
        for name in branches:
            self._suspended.pop(name, None)
        self._failing = None
        self._wait = self._patience.first_wait

    def open_for(self, branch: Branch) -> bool:
        """Returns whether the branch takes part now: not suspended, or long enough."""
        away = self._suspended.get(branch.id)
        return away is None or (not away.for_good and time.monotonic() >= away.back)

    def suspend(self, flow: Flow, error: DataflowError) -> bool:
        """Suspends the branch that the error is about; False when no other branch could go on."""
        if error.branch is None or isinstance(error, TakenOver) or not self._others(flow, error):
            self._suspended = {name: b for name, b in self._suspended.items() if b.for_good}
            return False
        now = time.monotonic()
        away = self._suspended.get(error.branch)
        wait = min(2 * away.wait, LONGEST_SUSPENSION) if away else self._patience.first_wait
        since = away.since if away else now
        self._suspended[error.branch] = SuspendedBranch(error, wait, since, now + wait)
        again = "for this run" if isinstance(error, PermanentError) else f"for {wait:.1f} s"
        log.warning("flow %s: %s is suspended %s: %s", flow.id, error.branch, again, error)
        return True

    def _others(self, flow: Flow, error: DataflowError) -> bool:
        others = {branch.id for branch in flow.branches} - {error.branch}
        away = {name: b for name, b in self._suspended.items() if name in others and not b.opened}
        coming = isinstance(error, PermanentError) and any(map(self._may_return, away.values()))
        return coming or bool(others - away.keys())

    def _may_return(self, branch: SuspendedBranch) -> bool:
        """For a branch that is out of patience it is too late, unless the run goes on and on."""
        patient = time.monotonic() - branch.since < self._patience.seconds
        return not branch.for_good and (self.continuous or patient)

    def wait_for_branch(self, flow: Flow) -> None:
        """Waits while every branch is suspended: an attempt has at least one.

        Raises what `raise_suspended` does where the run is to end meanwhile.
        """
        while not any(map(self.open_for, flow.branches)):
            if self.over or self._request.stop():
                self.raise_suspended(flow)
            backs = [branch.back for branch in self._suspended.values() if not branch.for_good]
            time.sleep(min(max(0.0, min(backs) - time.monotonic()), STEP_SECONDS))

    def lasting(self, branch: str | None) -> bool:
        """True where a suspended branch never comes back, or not within the run's patience."""
        away = self._suspended.get(branch or "")
        if away is None:
            return False
        return away.for_good or time.monotonic() - away.since >= self._patience.seconds

    def stop_at(self, error: Stopped) -> None:
        """Nothing at or behind this record is read any more in this run."""
        stop = self.stopped.get(error.partition)
        if error.partition.startswith(PART):
            raise error  # a part is stored whole or not at all
        if stop is not None and stop.offset <= error.offset:
            raise error  # read although the flow had stopped there: no bound stops it
        self.stopped[error.partition] = error

    def bounds(self, until: Positions | None, ends: Callable[[], Positions]) -> Positions | None:
        """The bounds of reading: not beyond `until`, and up to records at which the flow stops."""
        if not self.stopped:
            return until
        stops = {partition: error.offset for partition, error in self.stopped.items()}
        return {**(ends() if until is None else until), **stops}

    def raise_stopped(self) -> None:
        """Ends the run with the record at which it stopped."""
        for _, error in sorted(self.stopped.items()):
            raise error

    def returning(self, taking_part: Collection[str]) -> list[SuspendedBranch]:
        """Branches that may come back in this run, besides those that have."""
        away = [one for name, one in self._suspended.items() if name not in taking_part]
        return [branch for branch in away if self._may_return(branch)]

    def raise_suspended(self, flow: Flow) -> None:
        """Ends the run with the error of a branch that did not come back."""
        gone = sorted(self._suspended.items(), key=lambda item: not item[1].for_good)
        if not gone:
            return
        first = gone[0][1]
        kind = PermanentError if first.for_good else TransientError
        others = "The other branches went on; each" if len(gone) < len(flow.branches) else "Each"
        error = kind(
            f"flow {flow.id}: {_describe(gone)}. {others} continues from its own checkpoint"
        )
        error.suspended = tuple(self._suspended)
        raise error from first.error

    def last(self, error: DataflowError) -> DataflowError:
        """The error that ends the run, with those of branches that have failed for good before."""
        before = [one for one in sorted(self._suspended.items()) if one[1].for_good]
        if not before or isinstance(error, TakenOver):
            return error
        failure = PermanentError(f"{error}. Before that, {_describe(before)}")
        failure.branch, failure.suspended = error.branch, tuple(name for name, _ in before)
        failure.__cause__ = error
        return failure

    def wait_or_raise(self, flow: Flow, error: TransientError) -> None:
        """Waits before the next attempt.

        Raises once the patience is used up, and where the run is asked to end meanwhile.
        """
        now = time.monotonic()
        self._failing = self._failing or now
        tried = now - self._failing
        if tried >= self._patience.seconds or self.over:
            gave_up = TransientError(
                f"flow {flow.id}: gave up after {tried:.0f} s without progress: {error}. Nothing "
                f"is lost: the next run continues from the checkpoint"
            )
            raise self.last(gave_up) from error
        left = self._patience.seconds - tried
        log.warning(
            "flow %s: %s; trying again in %.1f s, for %.0f s at most",
            *(flow.id, error, self._wait, left),
        )
        self._rest(self._wait * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        self._wait = min(2 * self._wait, self._patience.longest_wait)
        if self._request.stop():
            raise self.last(error)

    def _rest(self, seconds: float) -> None:
        """In small steps: somebody may ask the run to end meanwhile."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._request.stop():
            time.sleep(min(left, STEP_SECONDS))


def _describe(suspended: Iterable[tuple[str, SuspendedBranch]]) -> str:
    return "; ".join(f"{name} was suspended: {branch.error}" for name, branch in suspended)
