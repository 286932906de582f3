"""Questions to servers that are asked side by side, each in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

from dataflow_assets.contracts import Sink, Source
from dataflow_assets.errors import DataflowError, TransientError

Answer = TypeVar("Answer")
Group = tuple[type, Hashable]
"""Ends that are asked together."""


def group_of(end: Source | Sink) -> Group:
    """With which others it is asked."""
    return type(end), end.shared


def asked_aside(ask: Callable[[], Answer]) -> Future[Answer]:
    """The answer to come. A thread that never gets one must not keep the process: a daemon."""
    answer = Future[Answer]()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001 (raised where the answer is wanted)
            answer.set_exception(error)

    Thread(target=run, daemon=True, name="dataflow-ask").start()
    return answer


def answers_of(
    asked: Future[list[Answer | DataflowError]], number: int
) -> Sequence[Answer | DataflowError]:
    """The answers that have come; so many times the error, where the whole question has failed."""
    error = asked.exception()
    if error is None:
        return asked.result()
    if isinstance(error, DataflowError):
        return [error] * number
    unexpected = TransientError(f"unexpected {type(error).__name__}: {error}")
    unexpected.__cause__ = error
    return [unexpected] * number
