"""The branches of a flow that take part in an attempt: each is opened, with a new epoch."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial

from dataflow_assets.contracts import ChecksTarget, SinkSession, SourceSession
from dataflow_assets.contracts.declared import KeepsLog
from dataflow_assets.errors import blame
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.languages.promises import ChecksKeys, NotesEnd
from dataflow_assets.runs.branch_turns import OpenBranch
from dataflow_assets.runs.create_table import make_ahead
from dataflow_assets.runs.request import Request
from dataflow_assets.runs.retries import RunProgress
from dataflow_assets.runs.start_positions import check_again, check_opened, settle
from dataflow_assets.sdk.raw_mode import shape_of
from dataflow_assets.sdk.sink.decide import taken_over


def open_branches(
    flow: Flow, source: SourceSession, progress: RunProgress, request: Request, stack: ExitStack
) -> list[OpenBranch]:
    """Opens every branch that is not suspended, and stores where each begins.

    Called by the loop on the driver, once for each attempt, before anything is read.

    Args:
        flow: with its secrets in place.
        source: its open session.
        progress: of the run; it learns the epochs, and the totals of branches that are new to it.
        request: what the run is asked to do.
        stack: closes the sessions at the end of the attempt.

    Raises:
        TakenOver: another run has begun since the attempt before. What else a sink raises is about
            its branch, which is suspended for it unless it is the last one.
        PermanentError: tables cannot be loaded again; no branch is changed. Whoever drives the flow
            goes on, unless a load of theirs has begun after the branches were asked.
    """
    branches = [one for one in flow.branches if progress.open_for(one)]
    for branch in branches:
        with blame(branch.id):
            check_still_ours(flow, branch, progress, request)
    for branch in branches:
        if (start := progress.start(branch)).reload:
            check_again(flow, branch, source, start)
    opened = list[OpenBranch]()
    for branch in branches:
        with blame(branch.id):
            target = replace(flow.target(branch), source_id=source.identity)
            session = branch.sink.open(target, request.run)
            stack.enter_context(closing(session))
            if isinstance(session, NotesEnd):
                stack.push(partial(_end, session, progress))
            _check(flow, branch, session)
        progress.note_open(branch, session.checkpoint)
        opened.append(OpenBranch(branch, session))
    for one in opened:
        if (start := progress.start(one.branch)).reload:
            check_opened(flow, one.branch, source, one.session, start)
    for one in opened:
        settle(flow, one.branch, source, one.session, progress.start(one.branch))
        progress.settled.add(one.branch.id)
        make_ahead(one)
    return opened


def _check(flow: Flow, branch: Branch, session: SinkSession) -> None:
    """Raises at once where the table does not fit, or where a slot would hold log for no reader."""
    columns = session.table.schema()
    shape_of(branch.sink, columns)
    if columns is not None and isinstance(flow.source, ChecksKeys):
        flow.source.check_keys(columns, branch.sink.address().name)
    begins_log = isinstance(flow.source, KeepsLog) and not session.checkpoint.positions
    if begins_log and not flow.transformations and isinstance(session.table, ChecksTarget):
        session.table.check_target()


def _end(
    session: NotesEnd,
    progress: RunProgress,
    _: object,
    error: BaseException | None,
    __: object,
) -> None:
    """Also the record at which the flow has stopped is why the attempt ends."""
    session.note_end(error or next(iter(progress.stopped.values()), None))


def check_still_ours(flow: Flow, branch: Branch, progress: RunProgress, request: Request) -> None:
    """Another attempt takes the flow from nobody: a run that has begun meanwhile goes on.

    Called on the driver before an attempt that follows another one, and where files are gone.

    Raises:
        TakenOver: a run that has begun since has the branch.
    """
    ours = progress.epochs.get(branch.id)
    if ours is None:
        return
    stored = branch.sink.peek(flow.target(branch))
    # An older epoch is what a replica shows that is behind.
    if stored is not None and stored.epoch > ours and stored.run_id != request.run.id:
        raise taken_over(flow.id, f"run {stored.run_id}")
