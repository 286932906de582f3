"""The loop: plan, begin, pass, finish, release, report; until the end that was visible at start.

One call is one run. A TransientError closes everything and tries again from the checkpoint with a
new epoch, so that what was left behind by the failed attempt can commit nothing any more; a run
that another one has taken the flow from meanwhile ends instead. A branch whose sink fails is
suspended while the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from dataflow_assets import failpoints
from dataflow_assets.errors import (
    DataflowError,
    Lost,
    PermanentError,
    Stopped,
    TakenOver,
    TransientError,
    outcome,
)
from dataflow_assets.flow import Flow
from dataflow_assets.runs.attempt import Reopen, RunAttempt
from dataflow_assets.runs.flow_metrics import FlowMetrics
from dataflow_assets.runs.host import Alone, RunHost
from dataflow_assets.runs.open_branches import check_still_ours
from dataflow_assets.runs.request import Report, Request
from dataflow_assets.runs.retries import RunProgress
from dataflow_assets.secrets import forget

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def drain(
    flow: Flow, host: RunHost | Callable[[], SparkSession], request: Request
) -> Iterator[Report]:
    """Runs the flow; yields a Report per commit and branch, and one last per branch.

    `host` drives the flow beside others; or it gives a live session each time it is called, for a
    run that has the process for itself. Raises TransientError once the patience is used up,
    PermanentError and TakenOver at once; what was reported is committed either way. A branch that
    failed while others went on ends the run with its error only after them.
    """
    failpoints.arm(failpoints.from_environment())
    log.info("flow %s: %s begins", flow.id, request.run)
    host = host if isinstance(host, RunHost) else Alone(host)
    with FlowMetrics(flow) as metrics:
        yield from _attempts(flow, host, request, RunProgress(request, metrics))


def _attempts(
    flow: Flow, host: RunHost, request: Request, progress: RunProgress
) -> Iterator[Report]:
    while True:
        opened = None
        try:
            opened = flow.resolve()
            with ExitStack() as stack:
                for report in RunAttempt(opened, host, request, progress, stack).reports():
                    progress.note_progress((report.branch.id,))
                    yield report
        except Reopen:
            continue
        except DataflowError as error:
            progress.metrics.note_error(error)
            if opened is None or not _was_replaced(flow, opened, error):
                _meet(flow, host, request, progress, error)
        else:
            progress.raise_stopped()
            progress.raise_suspended(flow)
            return


def _was_replaced(flow: Flow, opened: Flow, error: DataflowError) -> bool:
    """Returns whether a Secret or a certificate is another one than when the attempt began.

    Then the error that has ended the attempt is not final: the old value may have been refused. An
    attempt that follows a transient error reads all Secrets again in any case.
    """
    forget()
    if not isinstance(error, PermanentError) or isinstance(error, TakenOver | Stopped):
        return False
    fresh = outcome(flow.resolve)
    if isinstance(fresh, DataflowError) or fresh == opened:
        return False
    other = "a Secret has another value" if fresh.files == opened.files else "a certificate is new"
    log.warning("flow %s: %s; %s: trying again", flow.id, error, other)
    return True


def _meet(
    flow: Flow, host: RunHost, request: Request, progress: RunProgress, error: DataflowError
) -> None:
    """Returns when another attempt may succeed; else raises."""
    if isinstance(error, Lost):
        for branch in flow.resolve().branches:
            check_still_ours(flow, branch, progress, request)
    if isinstance(error, Stopped):
        progress.stop_at(error)
    elif isinstance(error, TransientError) and request.stop():
        raise progress.last(error)  # whoever asked to stop should not wait for the outage to end
    elif progress.suspend(flow, error):
        host.failing(error, lasting=progress.lasting(error.branch))
        progress.wait_for_branch(flow)
    elif isinstance(error, TransientError):
        host.failing(error, lasting=False)
        progress.wait_or_raise(flow, error)
    else:
        raise progress.last(error)
