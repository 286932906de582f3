"""Which of many sources have something new: their ends are asked for together, in one look."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import partial

from dataflow_assets.contracts import Positions, Source, SourceSession
from dataflow_assets.errors import DataflowError, outcome
from dataflow_assets.runs.questions import SILENCE, Group, Question, group_ends
from dataflow_assets.runs.together import ends_together

PATIENCE = 1.0  # seconds in which servers usually answer


def news(session: SourceSession, after: Positions, ends: Positions) -> bool:
    """Returns whether a partition holds something that is not read yet.

    An offset beyond the end is news as well: the topic is not the one that it was. A partition
    that no run has seen yet is news once it holds something.
    """
    for partition, end in ends.items():
        position = after.get(partition)
        comparable = isinstance(end, int) and position is not None
        if position != end and (comparable or session.lags(partition, position, end)):
            return True
    return False


@dataclass(frozen=True)
class OpenSource:
    """A source with all secrets in place, its open session, and what its readers have."""

    source: Source
    session: SourceSession
    after: tuple[Positions | None, ...] = ()
    """None: of one that has read nothing; everything is new to it."""


@dataclass(frozen=True)
class SourceEnd:
    """The end of a source, and the readers for which that is news."""

    ends: Positions
    news: tuple[bool, ...]


Answer = SourceEnd | DataflowError


@dataclass(frozen=True)
class _Look:
    """A question to one server."""

    sources: Mapping[str, OpenSource]
    question: Question[str, SourceEnd]


@dataclass(frozen=True)
class _Known:
    """The last answer for a source, and when it may be asked again."""

    asked: OpenSource
    answer: Answer
    again: float

    def is_of(self, one: OpenSource | None) -> bool:
        """Returns whether this session has said so, and not one that was open before."""
        return one is not None and one.session is self.asked.session

    def is_due(self, one: OpenSource) -> bool:
        """Returns whether to ask: the interval is over, or its readers have got on meanwhile."""
        silent = self.again == float("inf")
        return self.again <= time.monotonic() or (one.after != self.asked.after and not silent)


class Looks:
    """Looks at the same sources again and again; used by one thread at a time.

    A lane has one, for its own flows; the sensors of a code server share another one. `silence`:
    seconds without an answer after which a server counts as silent.
    """

    def __init__(self, silence: float = SILENCE) -> None:
        self._silence = silence
        self._under_way: dict[Group, _Look] = {}
        self._known: dict[str, _Known] = {}

    def ends_together(
        self, sources: Mapping[str, OpenSource], patience: float = PATIENCE
    ) -> dict[str, Answer]:
        """The end of each flow's source and for whom that is news, or why that is not known.

        Called by a lane every second, and by the sensors `ingest` and `lag` with each tick.
        Questions of earlier calls are not waited for once more: a slow server delays one call. A
        source with `poll_seconds` has its last answer repeated until they are over.

        Args:
            sources: by the id of the flow.
            patience: the most seconds that this call may take.

        Returns:
            A flow is left out while its server has not answered: nobody may use its session, and
            the next call tells. After the error of a silent server the session can only be closed.
        """
        wait_for([look.question.answer for look in self._ask(sources)], patience)
        for group, look in list(self._under_way.items()):
            self._gather(group, look)
        self._known = {f: k for f, k in self._known.items() if k.is_of(sources.get(f))}
        awaited = {flow for look in self._under_way.values() for flow in look.sources}
        return {f: self._known[f].answer for f in sources if f in self._known and f not in awaited}

    def asking(self, flow: str) -> bool:
        """True while a question to the flow's source is on its way: nobody may use its session."""
        return any(flow in look.sources for look in self._under_way.values())

    def _ask(self, sources: Mapping[str, OpenSource]) -> list[_Look]:
        """A question for each server that has none to answer yet."""
        due = {flow: one for flow, one in sources.items() if self._is_due(flow, one)}
        groups = group_ends((flow, one.source) for flow, one in due.items())
        new = groups.keys() - self._under_way.keys()
        for group in new:
            flows = {flow: due[flow] for flow in groups[group]}
            question = Question(groups[group], partial(_ask_ends, flows))
            self._under_way[group] = _Look(flows, question)
        return [self._under_way[group] for group in new]

    def _is_due(self, flow: str, one: OpenSource) -> bool:
        answer = self._known.get(flow)
        return answer is None or not answer.is_of(one) or answer.is_due(one)

    def _gather(self, group: Group, look: _Look) -> None:
        done, since = look.question.answer.done(), look.question.since
        if not done and time.monotonic() - since < self._silence:
            return
        answers = look.question.answers(self._silence)
        for flow, one in look.sources.items():
            # The thread of a question without an answer still uses the session.
            again = since + one.source.traits.poll_seconds if done else float("inf")
            self._known[flow] = _Known(one, answers[flow], again)
        del self._under_way[group]


def _ask_ends(sources: Mapping[str, OpenSource]) -> dict[str, Answer]:
    """In the question's own thread: some sessions ask their server to compare two positions."""
    sessions = [one.session for one in sources.values()]
    answers = zip(sources.items(), ends_together(sessions), strict=True)
    return {
        flow: ends if isinstance(ends, DataflowError) else outcome(partial(_find, one, ends))
        for (flow, one), ends in answers
    }


def _find(one: OpenSource, ends: Positions) -> SourceEnd:
    return SourceEnd(ends, tuple(a is None or news(one.session, a, ends) for a in one.after))
