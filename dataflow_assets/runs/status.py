"""Where flows stand: read only, no epoch is taken."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from dataflow_assets.contracts import Address, Checkpoint, Lag, Run, Target
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.runs.replay_entries import replay_target


@dataclass(frozen=True)
class Status:
    """One branch: its checkpoint (None before the first run) and how far it is behind."""

    flow: str
    branch: str
    source: Address
    address: Address
    checkpoint: Checkpoint | None
    lag: Lag


def status(flow: Flow) -> list[Status]:
    """The status of each branch. Raises TransientError when source or target cannot be reached."""
    resolved = flow.resolved()
    with closing(resolved.source.open(flow.id)) as source:
        found = []
        for branch in resolved.branches:
            checkpoint = branch.sink.peek(resolved.target(branch))
            known = checkpoint is not None and checkpoint.positions
            lag = source.lag(checkpoint.positions if checkpoint and known else source.start())
            found.append(
                Status(flow.id, branch.id, flow.source_address, branch.address, checkpoint, lag)
            )
    return found


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
