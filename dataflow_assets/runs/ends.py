"""The ends of many sources, asked for together: what has something new is found by one look.

Sources that share a server are one question, in a thread of its own: a server that does not answer
holds up nobody else, and is an error of its own flows after some seconds.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import partial

from dataflow_assets.contracts import Positions, Source, SourceSession
from dataflow_assets.errors import DataflowError, TransientError
from dataflow_assets.runs.questions import Group, answers_of, asked_aside, group_of

PATIENCE = 1.0  # seconds in which servers usually answer
SILENCE = 10.0  # seconds after which a server is taken for silent

Ends = Positions | DataflowError


def news(session: SourceSession, after: Positions, ends: Positions) -> bool:
    """Whether a partition holds something that is not read yet.

    An offset beyond the end is news as well: the topic is not the one that it was. A partition
    that no run has seen yet is news once it holds something.
    """
    for partition, end in ends.items():
        position = after.get(partition)
        comparable = isinstance(end, int) and position is not None
        if position != end and (comparable or session.behind(partition, position, end)):
            return True
    return False


@dataclass(frozen=True)
class OpenSource:
    """A source with all secrets in place, and its open session."""

    source: Source
    session: SourceSession


@dataclass(frozen=True)
class _Look:
    """A question that is on its way."""

    sources: Mapping[str, OpenSource]
    answers: Future[list[Ends]]
    since: float


@dataclass(frozen=True)
class _Known:
    """What a session has answered, and when it may be asked again."""

    session: SourceSession
    ends: Ends
    again: float

    def is_of(self, one: OpenSource | None) -> bool:
        """Whether this session has said so, and not one that was open before."""
        return one is not None and one.session is self.session


class Looks:
    """Looks at the same sources again and again; used by one thread."""

    def __init__(self, silence: float = SILENCE) -> None:
        self._silence = silence
        self._under_way: dict[Group, _Look] = {}
        self._known: dict[str, _Known] = {}

    def ends_together(
        self, sources: Mapping[str, OpenSource], patience: float = PATIENCE
    ) -> dict[str, Ends]:
        """By the flow where its source ends, or why that is not known.

        A source with `poll_seconds` has its last answer repeated until they are over. A flow is
        left out while its server has not answered: nobody may use its session, and the next call
        tells. After the error of a silent server the session can only be closed.
        """
        self._ask(sources)
        wait_for([look.answers for look in self._under_way.values()], patience)
        for group, look in list(self._under_way.items()):
            self._gather(group, look, time.monotonic())
        self._known = {f: k for f, k in self._known.items() if k.is_of(sources.get(f))}
        awaited = {flow for look in self._under_way.values() for flow in look.sources}
        return {f: self._known[f].ends for f in sources if f in self._known and f not in awaited}

    def asking(self, flow: str) -> bool:
        """Whether a question to the flow's source is on its way: nobody may use its session."""
        return any(flow in look.sources for look in self._under_way.values())

    def _ask(self, sources: Mapping[str, OpenSource]) -> None:
        """A question for each server that has none to answer yet."""
        groups = defaultdict[Group, dict[str, OpenSource]](dict)
        for flow, one in sources.items():
            known = self._known.get(flow)
            if known is None or not known.is_of(one) or known.again <= time.monotonic():
                groups[group_of(one.source)][flow] = one
        for group in groups.keys() - self._under_way.keys():
            due = groups[group]
            sessions = [one.session for one in due.values()]
            ask = partial(type(sessions[0]).ends_together, sessions)
            self._under_way[group] = _Look(due, asked_aside(ask), time.monotonic())

    def _gather(self, group: Group, look: _Look, now: float) -> None:
        """What a question has brought, or that it will bring nothing."""
        if look.answers.done():
            answers = zip(
                look.sources.items(), answers_of(look.answers, len(look.sources)), strict=True
            )
            for (flow, one), ends in answers:
                again = look.since + one.source.poll_seconds
                self._known[flow] = _Known(one.session, ends, again)
        elif now - look.since >= self._silence:
            for flow, one in look.sources.items():
                # Its thread still uses the session: it is never asked again.
                self._known[flow] = _Known(one.session, self._silent(one.source), float("inf"))
        else:
            return
        del self._under_way[group]

    def _silent(self, source: Source) -> TransientError:
        return TransientError(
            f"{source.address()}: no answer for {self._silence:g} seconds where its end was asked "
            "for; check that the server is up and reachable"
        )
