"""Forgets where flows stand."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace

from dataflow_assets.contracts import Run, SinkSession, Target
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.runs.replay_entries import replay_target
from dataflow_assets.runs.request import Start
from dataflow_assets.runs.start_positions import check_again, check_opened, settle


def reset(flow: Flow, run: Run) -> list[Branch]:
    """Forgets the checkpoint of every branch, and that of its replays; the rows stay.

    Each under an epoch of its own.
    """
    resolved = flow.resolve()
    for branch in resolved.branches:
        _forget(branch, resolved.target(branch), run)
        again = replay_target(resolved, branch)
        if branch.sink.peek(again) is not None:
            _forget(branch, again, run)
    return list(resolved.branches)


def load_again(flow: Flow, run: Run, tables: tuple[str, ...], *, confirmed: bool) -> list[Branch]:
    """Has the next run load the rows of these tables again, in all branches; the others go on.

    Called by `dataflow reset --table`. Each branch under an epoch of its own: a run that is active
    ends with `TakenOver`. Before that all branches are asked, so that a refusal changes nothing and
    ends nobody's run. They are asked again once all of them are open: a refusal by then, since a
    load has begun meanwhile, changes nothing either, but the run that loads ends and must be
    started again. A branch that has not begun loads all tables anyway.

    Raises:
        PermanentError: the source has no such table, a branch is appended to and nobody has
            confirmed, or a load of a branch is not finished.
    """
    resolved, start = flow.resolve(), Start(reload=tables, confirmed=confirmed)
    with ExitStack() as stack:
        source = stack.enter_context(closing(resolved.source.open(flow.id)))
        for branch in resolved.branches:
            check_again(resolved, branch, source, start)
        opened = list[tuple[Branch, SinkSession]]()
        for branch in resolved.branches:
            target = replace(resolved.target(branch), source_id=source.identity)
            session = stack.enter_context(closing(branch.sink.open(target, run)))
            opened.append((branch, session))
        for branch, session in opened:
            check_opened(resolved, branch, source, session, start)
        for branch, session in opened:
            settle(resolved, branch, source, session, start)
    return list(resolved.branches)


def _forget(branch: Branch, target: Target, run: Run) -> None:
    with closing(branch.sink.open(target, run)) as session:
        session.forget()
