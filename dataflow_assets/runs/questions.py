"""Questions to servers that are asked side by side, each in a thread of its own.

A server that does not answer holds up nobody who asks another one.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerYet
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from typing import Generic, TypeVar

from dataflow_assets.contracts import Checkpoint, PeeksTogether, Sink, Source, Target
from dataflow_assets.errors import DataflowError, TransientError, outcome

Key = TypeVar("Key")
End = TypeVar("End", Source, Sink)
Answer = TypeVar("Answer")
Group = tuple[type, Hashable]
"""By which ends are told that are asked together."""

SILENCE = 30.0  # seconds without an answer; usually the clients themselves give up after ten
KNOCK = 5.0  # seconds in which a server that is up answers a first question about one end


def group_ends(ends: Iterable[tuple[Key, End]]) -> dict[Group, dict[Key, End]]:
    """The ends that are asked together, by what they share."""
    groups = defaultdict[Group, dict[Key, End]](dict)
    for key, end in ends:
        groups[type(end), _group_of(end)][key] = end
    return groups


def _group_of(end: Source | Sink) -> Hashable:
    """Returns what it shares; one that cannot tell, its certificate gone, is asked by itself.

    Then its error is its own, and a session that is open goes on. Raised here, it would be that of
    everybody who is looked at: of a whole lane.
    """
    try:
        return end.connection_group
    except Exception:  # noqa: BLE001 - told where it is asked by itself
        return id(end)


class Question(Generic[Key, Answer]):
    """A question about many ends of one server; `ends` are these, by any key."""

    def __init__(
        self,
        ends: Mapping[Key, Source | Sink],
        ask: Callable[[], Mapping[Key, Answer | DataflowError]],
        knock: Callable[[], object] | None = None,
    ) -> None:
        """`knock` is called before `ask`, by the same thread: it asks a little, about one end.

        What `knock` raises is told by `ask`, too.
        """
        self.since = time.monotonic()
        self.answer = Future[Mapping[Key, Answer | DataflowError]]()
        self._ends = ends
        self._ask, self._knock = ask, knock
        self._heard = Event()
        # A thread that gets no answer must not keep the process: a daemon.
        Thread(target=self._run, daemon=True, name="dataflow-question").start()

    def answers(self, silence: float = SILENCE) -> Mapping[Key, Answer | DataflowError]:
        """Waits for the answers, but so long only; what was not answered is an error of each.

        A server that was knocked at, and has not answered that for five seconds, is silent.
        """
        if not self._heard.wait(max(0.0, self.since + min(KNOCK, silence) - time.monotonic())):
            return self._all_silent(min(KNOCK, silence))
        left = self.since + silence - time.monotonic()
        try:
            return self.answer.result(max(0.0, left))
        except NoAnswerYet:
            return self._all_silent(silence)

    def _all_silent(self, seconds: float) -> Mapping[Key, Answer | DataflowError]:
        return {key: _no_answer(end, seconds) for key, end in self._ends.items()}

    def _run(self) -> None:
        if self._knock is not None:
            with suppress(Exception):
                self._knock()
        self._heard.set()
        try:
            answers = self._ask()
        except DataflowError as error:
            answers = dict.fromkeys(self._ends, error)
        except Exception as error:  # noqa: BLE001 (becomes the answer, of these ends alone)
            answers = {key: _unexpected_error(end, error) for key, end in self._ends.items()}
        self.answer.set_result(answers)


def _no_answer(end: Source | Sink, silence: float) -> TransientError:
    servers = ", ".join(one for one in end.spellings() if isinstance(one, str))
    name = f"{end.address()} ({servers})" if servers else f"{end.address()}"
    return TransientError(
        f"{name}: no answer for {silence:g} seconds; check that its server is up, can be reached "
        "from here, and encrypts its connections where the manifest does"
    )


def _unexpected_error(end: Source | Sink, error: Exception) -> TransientError:
    failure = TransientError(f"{end.address()}: unexpected {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def ask_within(ask: Callable[[], Answer], silence: float) -> Answer:
    """Returns what `ask` returns; TransientError where it takes longer than so many seconds."""
    answer = Future[Answer]()

    def run() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:  # noqa: BLE001 (raised where the answer is waited for)
            answer.set_exception(error)

    Thread(target=run, daemon=True, name="dataflow-question").start()
    try:
        return answer.result(silence)
    except NoAnswerYet:
        raise TransientError(f"no answer for {silence:g} seconds") from None


def peek_all(asked: Sequence[tuple[Sink, Target]]) -> list[Checkpoint | DataflowError | None]:
    """The stored checkpoints of branches whose sinks are asked together, or what is wrong."""
    together = [(sink, target) for sink, target in asked if isinstance(sink, PeeksTogether)]
    if together:
        return type(together[0][0]).peek_together(together)
    return [outcome(partial(sink.peek, target)) for sink, target in asked]
