"""The open sources of all flows, looked at together: one connection for each server.

Sessions stay open between ticks: connecting costs more than asking. A server that does not answer
holds up nobody: its flows are left out until it does, or until it counts as silent.
"""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dataflow_assets.contracts import Lag, Positions, Source, SourceSession
from dataflow_assets.errors import DataflowError, TransientError, outcome
from dataflow_assets.flow import Flow
from dataflow_assets.runs.news import Answer, Looks, OpenSource, SourceEnd
from dataflow_assets.runs.questions import Group, Question, group_ends
from dataflow_assets.runs.together import lags_together, open_together

OPEN_SECONDS = 5.0  # how long a tick waits for connections that are made
LAG_SECONDS = 10.0  # how long it waits for the age of unread records


News = tuple[bool, ...] | DataflowError


@dataclass(frozen=True)
class _Open:
    """An open source, of which manifest."""

    manifest: str
    source: OpenSource


@dataclass(frozen=True)
class _Opening:
    """Sources of one server that are being opened, and of which manifests."""

    manifests: Mapping[str, str]
    sources: Mapping[str, Source]
    question: Question[str, SourceSession]


class Sources:
    """All open sources of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}
        self._opening: dict[Group, _Opening] = {}
        self._errors: dict[str, DataflowError] = {}
        self._asking: dict[Group, Question[Any, Any]] = {}
        """Questions that have not been answered: nobody may use these sessions."""
        self._looks = Looks()

    def news(self, asked: Sequence[tuple[Flow, tuple[Positions | None, ...]]]) -> dict[str, News]:
        """The readers of each flow for which there is something new, or why that is not known.

        To a reader without positions everything is new.
        """
        with self._lock:
            free = self._free([flow for flow, _ in asked])
            reading = {
                flow.id: replace(free[flow.id], after=after)
                for flow, after in asked
                if flow.id in free
            }
            answers = self._answers([flow for flow, _ in asked], reading)
        return {f: one.news if isinstance(one, SourceEnd) else one for f, one in answers.items()}

    def lags(self, asked: Sequence[tuple[Flow, Positions | None]]) -> list[Lag | DataflowError]:
        """Returns how far each branch is behind, given its positions."""
        with self._lock:
            flows = [flow for flow, _ in asked]
            free = self._free(flows)
            ends = self._answers(flows, free)  # of those that answer nothing, nothing more is asked
            answers: dict[int, Lag | DataflowError] = {
                number: end if isinstance(end, DataflowError) else _no_answer(flow)
                for number, flow in enumerate(flows)
                if isinstance(end := ends[flow.id], DataflowError) or flow.id not in free
            }
            due = [number for number in range(len(asked)) if number not in answers]
            for group, numbers in group_ends((n, free[flows[n].id].source) for n in due).items():
                these = {n: (free[flows[n].id].session, asked[n][1]) for n in numbers}
                self._asking[group] = Question(numbers, partial(_lags, these))
                answers |= self._asking[group].answers(LAG_SECONDS)
                if self._asking[group].answer.done():
                    del self._asking[group]
                    self._drop_failed({flows[n].id: answers[n] for n in numbers})
            return [answers[number] for number in range(len(asked))]

    def close(self) -> None:
        with self._lock:
            for name in list(self._open):
                self._drop(name)

    def _answers(
        self, flows: Sequence[Flow], free: Mapping[str, OpenSource]
    ) -> Mapping[str, Answer]:
        answers: dict[str, Answer] = {**self._looks.ends_together(free)}
        self._drop_failed(answers)
        unknown = {
            f.id: self._errors.get(f.id) or _no_answer(f) for f in flows if f.id not in answers
        }
        return {**answers, **unknown}

    def _free(self, flows: Sequence[Flow]) -> dict[str, OpenSource]:
        """The open sources of these flows that nobody is asking."""
        self._asking = {g: one for g, one in self._asking.items() if not one.answer.done()}
        self._keep_opened()
        self._open_all([flow for flow in flows if self._is_outdated(flow)])
        busy = self._asking.keys() | self._opening.keys()
        ends = {flow.id: self._open[flow.id].source for flow in flows if flow.id in self._open}
        groups = group_ends((name, one.source) for name, one in ends.items())
        return {n: ends[n] for group, names in groups.items() if group not in busy for n in names}

    def _is_outdated(self, flow: Flow) -> bool:
        source = self._open.get(flow.id)
        return source is None or source.manifest != flow.hash

    def _open_all(self, flows: Sequence[Flow]) -> None:
        """Opens them, server by server and side by side; one that takes longer is kept later.

        What earlier ticks have begun to open is not waited for once more.
        """
        manifests, resolved_sources = {flow.id: flow.hash for flow in flows}, []
        for flow in flows:
            self._drop(flow.id)
            resolved = outcome(flow.resolve)
            if isinstance(resolved, DataflowError):
                self._errors[flow.id] = resolved
            else:
                resolved_sources.append((flow.id, resolved.source))
        groups = group_ends(resolved_sources)
        new = groups.keys() - self._asking.keys() - self._opening.keys()
        for group in new:
            question = Question(groups[group], partial(open_together, groups[group]))
            self._opening[group] = _Opening(manifests, groups[group], question)
        wait_for([self._opening[group].question.answer for group in new], OPEN_SECONDS)
        self._keep_opened()

    def _keep_opened(self) -> None:
        for group, one in list(self._opening.items()):
            if one.question.answer.done():
                del self._opening[group]
                for name, session in one.question.answers().items():
                    self._keep(name, one.manifests[name], one.sources[name], session)

    def _keep(
        self, name: str, manifest: str, source: Source, found: SourceSession | DataflowError
    ) -> None:
        self._errors.pop(name, None)
        if isinstance(found, DataflowError):
            self._errors[name] = found
        else:
            self._open[name] = _Open(manifest, OpenSource(source, found))

    def _drop_failed(self, answers: Mapping[str, object]) -> None:
        for name, answer in answers.items():
            if isinstance(answer, DataflowError):
                self._drop(name)

    def _drop(self, name: str) -> None:
        """Closes a session, unless a thread that gets no answer still uses it."""
        source = self._open.pop(name, None)
        if source is not None and not self._looks.asking(name):
            threading.Thread(target=source.source.session.close, daemon=True).start()


def _lags(
    asked: Mapping[int, tuple[SourceSession, Positions | None]],
) -> Mapping[int, Lag | DataflowError]:
    lags = lags_together(list(asked.values()))
    return dict(zip(asked, lags, strict=True))


def _no_answer(flow: Flow) -> TransientError:
    return TransientError(f"{flow.source_address}: its server has not answered yet")


sources = Sources()
