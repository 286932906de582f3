"""Status of flows, asked for all of them together: read only, no epoch is taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from dataflow_assets.contracts import (
    Address,
    Checkpoint,
    Lag,
    Positions,
    Sink,
    Source,
    SourceSession,
    Target,
)
from dataflow_assets.errors import DataflowError, outcome
from dataflow_assets.flow import Flow
from dataflow_assets.languages.promises import ShowsInheritance
from dataflow_assets.runs.questions import SILENCE, End, Question, group_ends, peek_all
from dataflow_assets.runs.together import lags_together, open_together

Key = tuple[str, str]
"""Flow and branch."""
Stored = Checkpoint | DataflowError | None
Value = TypeVar("Value")


@dataclass(frozen=True)
class Status:
    """One branch: its checkpoint (None before the first run) and how far it is behind.

    Before the first run it may be behind of what another program has stored: then the epoch is 0.
    """

    flow: str
    branch: str
    source: Address
    address: Address
    checkpoint: Checkpoint | None
    lag: Lag


@dataclass(frozen=True)
class Answer:
    """Positions of a flow's branches, and why that of one of them is not known."""

    flow: Flow
    found: Sequence[Status] = ()
    error: DataflowError | None = None

    @property
    def is_late(self) -> bool:
        """True where one of its branches has records to read that are older than it promises.

        A schedule promises nothing: records wait for its next tick.
        """
        if self.flow.schedule is not None:
            return False
        promised = self.flow.policies.freshness_seconds
        return any(one.lag.records > 0 and (one.lag.seconds or 0) > promised for one in self.found)

    @property
    def is_known(self) -> bool:
        """Returns whether each branch answered and tells its oldest record, or one is late."""
        ages = [one.lag.seconds for one in self.found]
        return self.error is None and (self.is_late or None not in ages)


def statuses(flows: Sequence[Flow], silence: float = SILENCE) -> list[Answer]:
    """Returns where each flow stands, in their order.

    Servers are asked side by side. One that is silent for so long is an error of its own flows; one
    that does not even answer what is asked about a single end, sooner.
    """
    resolved = {flow.id: outcome(partial(_resolve, flow)) for flow in flows}
    ready = [one for one in resolved.values() if isinstance(one, Flow)]
    targets = {(f.id, branch.id): f.target(branch) for f in ready for branch in f.branches}
    sinks = group_ends(((f.id, branch.id), branch.sink) for f in ready for branch in f.branches)
    sources = group_ends(((f.id, branch.id), f.source) for f in ready for branch in f.branches)
    peeks = [
        Question(ends, partial(_peek, ends, targets), partial(_peek, _one(ends), targets))
        for ends in sinks.values()
    ]
    peeked = partial(_merge, peeks, silence)
    looks = [
        Question(ends, partial(_lags, ends, peeked), partial(_open, _one(ends)))
        for ends in sources.values()
    ]
    # A look begins with the checkpoints, for which it may have waited as long.
    lags, stored = _merge(looks, 2 * silence), peeked()
    return [_answer(flow, resolved[flow.id], stored, lags) for flow in flows]


def _resolve(flow: Flow) -> Flow:
    """With its secrets in place: it must be known by them which servers are to be asked."""
    resolved = flow.resolve()
    for end in (resolved.source, *(branch.sink for branch in resolved.branches)):
        hash(end.connection_group)
    return resolved


def _merge(
    questions: Sequence[Question[Key, Value]], silence: float
) -> dict[Key, Value | DataflowError]:
    return {key: one for question in questions for key, one in question.answers(silence).items()}


def _one(ends: Mapping[Key, End]) -> Mapping[Key, End]:
    return dict([next(iter(ends.items()))])


def _peek(
    sinks: Mapping[Key, Sink], targets: Mapping[Key, Target]
) -> dict[Key, Checkpoint | DataflowError | None]:
    targets_of_sinks = [(sink, targets[key]) for key, sink in sinks.items()]
    checkpoints = peek_all(targets_of_sinks)
    return {
        key: outcome(partial(_inherited_checkpoint, *ends)) if one is None else one
        for key, ends, one in zip(sinks, targets_of_sinks, checkpoints, strict=True)
    }


def _inherited_checkpoint(sink: Sink, target: Target) -> Checkpoint | None:
    positions = sink.inheritance(target) if isinstance(sink, ShowsInheritance) else None
    return Checkpoint(epoch=0, positions=positions) if positions else None


def _open(sources: Mapping[Key, Source]) -> None:
    by_flow = {flow: source for (flow, _), source in sources.items()}
    for session in open_together(by_flow).values():
        if isinstance(session, SourceSession):
            session.close()


def _lags(
    sources: Mapping[Key, Source], peeked: Callable[[], Mapping[Key, Stored]]
) -> dict[Key, Lag | DataflowError]:
    by_flow = {flow: source for (flow, _), source in sources.items()}
    opened = open_together(by_flow)
    sessions = [one for one in opened.values() if isinstance(one, SourceSession)]
    try:
        stored = peeked()
        lags = _compare({key: opened[key[0]] for key in sources}, stored)
    finally:
        for session in sessions:
            session.close()
    return lags


def _compare(
    sessions: Mapping[Key, SourceSession | DataflowError], stored: Mapping[Key, Stored]
) -> dict[Key, Lag | DataflowError]:
    lags: dict[Key, Lag | DataflowError] = {}
    questions: dict[Key, tuple[SourceSession, Positions | None]] = {}
    for key, session in sessions.items():
        checkpoint = stored[key]
        if isinstance(session, DataflowError):
            lags[key] = session
        elif isinstance(checkpoint, DataflowError):
            lags[key] = checkpoint
        else:
            questions[key] = session, (checkpoint.positions or None) if checkpoint else None
    if questions:
        lags |= zip(questions, lags_together(list(questions.values())), strict=True)
    return lags


def _answer(
    flow: Flow,
    resolved: Flow | DataflowError,
    stored: Mapping[Key, Stored],
    lags: Mapping[Key, Lag | DataflowError],
) -> Answer:
    if isinstance(resolved, DataflowError):
        return Answer(flow, error=resolved)
    statuses, errors = [], []
    for branch in flow.branches:
        checkpoint, lag = stored[flow.id, branch.id], lags[flow.id, branch.id]
        if isinstance(lag, DataflowError):  # as well where the checkpoint is not known
            errors.append(lag)
        elif not isinstance(checkpoint, DataflowError):
            ends = flow.source_address, branch.address
            statuses.append(Status(flow.id, branch.id, *ends, checkpoint, lag))
    return Answer(flow, statuses, next(iter(errors), None))
