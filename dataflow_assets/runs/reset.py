"""Forgets where flows stand."""

from __future__ import annotations

from contextlib import closing

from dataflow_assets.contracts import Run, Target
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.runs.replay_entries import replay_target


def reset(flow: Flow, run: Run) -> list[Branch]:
    """Forgets the checkpoint of every branch, and that of its replays; the rows stay.

    Each under an epoch of its own.
    """
    resolved = flow.resolved()
    for branch in resolved.branches:
        _forget(branch, resolved.target(branch), run)
        again = replay_target(resolved, branch)
        if branch.sink.peek(again) is not None:
            _forget(branch, again, run)
    return list(resolved.branches)


def _forget(branch: Branch, target: Target, run: Run) -> None:
    with closing(branch.sink.open(target, run)) as session:
        session.forget()
