"""The open sources of all flows, looked at together: one connection for each server.

Sessions stay open between ticks: connecting costs more than asking. A server that does not answer
holds up nobody: its flows are left out until it does, or until it counts as silent.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from dataflow_assets.contracts import Lag, Positions, Source, SourceSession
from dataflow_assets.errors import DataflowError, TransientError, outcome
from dataflow_assets.flow import Flow
from dataflow_assets.runs.ends import Ends, Looks, OpenSource, news
from dataflow_assets.runs.questions import Group, answers_of, asked_aside, group_of

OPEN_SECONDS = 5.0  # how long a tick waits for connections that are made
LAG_SECONDS = 10.0  # how long it waits for the age of unread records
WAITED = "its server has not answered yet"


@dataclass(frozen=True)
class _Open:
    """An open source, of which manifest."""

    manifest: str
    source: OpenSource


class View:
    """One look at many flows, as long as nobody else looks."""

    def __init__(self, ends: Mapping[str, Ends], sources: Mapping[str, OpenSource]) -> None:
        self._ends, self._sources = ends, sources

    def behind(self, flow: Flow, known: Positions | None) -> bool:
        """Whether a branch of the flow has something to read; True where it knows no position.

        Raises DataflowError where the source cannot be asked.
        """
        ends = self._ends[flow.id]
        if isinstance(ends, DataflowError):
            raise ends
        return known is None or news(self._sources[flow.id].session, known, ends)


class Sources:
    """All open sources of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}
        self._errors: dict[str, DataflowError] = {}
        self._asking: dict[Group, Future[Any]] = {}
        """Questions that have not been answered: nobody may use these sessions."""
        self._looks = Looks()

    @contextmanager
    def looking(self, flows: Sequence[Flow]) -> Iterator[View]:
        """Where the flows' sources end; nobody else looks meanwhile."""
        with self._lock:
            free = self._free(flows)
            yield View(self._ends(flows, free), free)

    def _ends(self, flows: Sequence[Flow], free: Mapping[str, OpenSource]) -> Mapping[str, Ends]:
        """Of each flow, or why that is not known."""
        found: dict[str, Ends] = {**self._looks.ends_together(free)}
        for name, ends in found.items():
            if isinstance(ends, DataflowError):
                self._drop(name)  # the next look opens another session
        unknown = {f.id: self._errors.get(f.id) or _silent(f) for f in flows if f.id not in found}
        return {**found, **unknown}

    def lags(self, asked: Sequence[tuple[Flow, Positions | None]]) -> list[Lag | DataflowError]:
        """How far each branch is behind, given its positions."""
        with self._lock:
            flows = [flow for flow, _ in asked]
            free = self._free(flows)
            ends = self._ends(flows, free)  # of those that answer nothing, nothing more is asked
            groups: dict[Group, list[int]] = defaultdict(list)
            found: list[Lag | DataflowError] = []
            for number, flow in enumerate(flows):
                known = ends[flow.id]
                found.append(known if isinstance(known, DataflowError) else _silent(flow))
                if not isinstance(known, DataflowError):
                    groups[group_of(free[flow.id].source)].append(number)
            for group, numbers in groups.items():
                these = [(free[flows[n].id].session, asked[n][1]) for n in numbers]
                self._asking[group] = asked_aside(partial(type(these[0][0]).lags_together, these))
            wait_for([self._asking[group] for group in groups], LAG_SECONDS)
            for group, numbers in groups.items():
                if self._asking[group].done():
                    answers = answers_of(self._asking.pop(group), len(numbers))
                    for number, answer in zip(numbers, answers, strict=True):
                        found[number] = answer
            return found

    def close(self) -> None:
        """Closes all sessions that nobody uses."""
        with self._lock:
            for name in list(self._open):
                self._drop(name)

    def _free(self, flows: Sequence[Flow]) -> dict[str, OpenSource]:
        """The open sources of these flows that nobody is asking."""
        self._asking = {group: one for group, one in self._asking.items() if not one.done()}
        self._open_all([flow for flow in flows if self._outdated(flow)])
        known = {flow.id: self._open[flow.id].source for flow in flows if flow.id in self._open}
        return {n: one for n, one in known.items() if group_of(one.source) not in self._asking}

    def _outdated(self, flow: Flow) -> bool:
        known = self._open.get(flow.id)
        return known is None or known.manifest != flow.hash

    def _open_all(self, flows: Sequence[Flow]) -> None:
        """Opens them, server by server and side by side."""
        groups: dict[Group, dict[str, tuple[Flow, Source]]] = defaultdict(dict)
        for flow in flows:
            self._drop(flow.id)
            found = outcome(flow.resolved)
            if isinstance(found, DataflowError):
                self._errors[flow.id] = found
            else:
                groups[group_of(found.source)][flow.id] = flow, found.source
        opening = {}
        for group, these in groups.items():
            if group not in self._asking:
                sources = {name: source for name, (_, source) in these.items()}
                opening[group] = asked_aside(partial(_opened, sources))
                self._asking[group] = opening[group]
        wait_for(opening.values(), OPEN_SECONDS)
        for group, answer in opening.items():
            if answer.done():
                del self._asking[group]
                self._keep(groups[group], answer)

    def _keep(
        self,
        asked: Mapping[str, tuple[Flow, Source]],
        answer: "Future[list[SourceSession | DataflowError]]",
    ) -> None:
        found = answers_of(answer, len(asked))
        for (name, (flow, source)), one in zip(asked.items(), found, strict=True):
            if isinstance(one, DataflowError):
                self._errors[name] = one
            else:
                self._errors.pop(name, None)
                self._open[name] = _Open(flow.hash, OpenSource(source, one))

    def _drop(self, name: str) -> None:
        known = self._open.pop(name, None)
        if known is not None and group_of(known.source.source) not in self._asking:
            asked_aside(known.source.session.close)


def _opened(sources: Mapping[str, Source]) -> list[SourceSession | DataflowError]:
    first = next(iter(sources.values()))
    found = type(first).open_together(sources)
    return [found[name] for name in sources]


def _silent(flow: Flow) -> TransientError:
    return TransientError(f"{flow.source_address}: {WAITED}")


sources = Sources()
