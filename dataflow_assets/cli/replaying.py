"""`dataflow replay`: rejected records of one flow once more through it.

In a thread of its own, so that Ctrl-C is heard while a server is waited for: the first one ends the
replay after the part it is at, the second abandons it. Parts are put back whole or not at all.
"""

from __future__ import annotations

import json
import queue
import sys
import time
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from dataflow_assets.cli import running, selection
from dataflow_assets.cli.console import err, out, sentence, trace
from dataflow_assets.cli.logs import show_log
from dataflow_assets.contracts import Run
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.replay import Replayed
from dataflow_assets.runs.replay import replay as put_back
from dataflow_assets.spark.session import Spark, SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET_SECONDS = 10.0  # between two plain lines


def replay(asked: Namespace) -> int:
    """Puts entries back; 1 when that failed or the flow keeps none."""
    (flow,) = selection.to_run(load(asked.paths), [asked.flow])
    spark, stop = Spark(SparkSettings.from_environment()), running.Stop(running.abandon)
    shown, done, error = _display(asked.json, flow), Replayed(), None
    with show_log(shown.say, [flow], asked.verbose), stop.listening():
        try:
            for part in _parts(flow, spark.session, asked.since, stop):
                done += part
                shown.show(done)
        except Exception as failure:  # noqa: BLE001 (one sentence; the traceback on demand)
            error = failure
        finally:
            spark.close()
    message = sentence(error, [flow]) if error else None
    stopped = stop() or flow.pause_reason()
    shown.close(done, stopped, message)
    if error and asked.verbose:
        err(trace(error, [flow]))
    return 1 if error else stop.code or int(bool(stopped))


def _parts(
    flow: Flow, spark: Callable[[], SparkSession], since: datetime | None, stop: running.Stop
) -> Iterator[Replayed]:
    parts: queue.SimpleQueue[Replayed | None] = queue.SimpleQueue()

    def work() -> None:
        try:
            for part in put_back(flow, spark, Run(), since):
                parts.put(part)
                if stop() or flow.pause_reason():
                    break
        finally:
            parts.put(None)

    pool = ThreadPoolExecutor(1, thread_name_prefix="replay")
    working = pool.submit(work)
    try:
        while (part := running.take(parts)) is not None:
            yield part
        working.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class _Display(ABC):
    """Shows how far a replay has come."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    @abstractmethod
    def show(self, done: Replayed) -> None:
        """Shows what has been put back so far."""

    def say(self, text: str) -> None:
        """Prints a line beside the display: warnings of the engine."""
        err(text)

    def close(self, done: Replayed, stopped: str, error: str | None) -> None:
        """Says how it ended: `stopped` is why before its end, where that was asked for."""
        if error is None:
            ended = f"; {stopped}, the next replay goes on" if stopped else ""
            out(f"{self._flow.id}: {done}{ended}")
            return
        before = f"; before that, {done}" if done.entries else ""
        prefix = "" if self._flow.id in error else f"{self._flow.id}: "
        out(f"{prefix}failed: {error}{before}")


class _Lines(_Display):
    """Plain lines, at most one in ten seconds."""

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow)
        self._shown = time.monotonic()

    @override
    def show(self, done: Replayed) -> None:
        if time.monotonic() - self._shown >= QUIET_SECONDS:
            self._shown = time.monotonic()
            out(f"{self._flow.id}: {done}")


class _Terminal(_Display):
    """One live line on a terminal."""

    def __init__(self, flow: Flow) -> None:
        from rich.console import Console

        super().__init__(flow)
        self._status = Console().status(f"{flow.id}: looking for rejected records")
        self._status.start()

    @override
    def show(self, done: Replayed) -> None:
        self._status.update(f"{self._flow.id}: {done}")

    @override
    def say(self, text: str) -> None:
        self._status.console.print(text, markup=False, highlight=False)

    @override
    def close(self, done: Replayed, stopped: str, error: str | None) -> None:
        self._status.stop()
        super().close(done, stopped, error)


class _Json(_Display):
    """One JSON object per part, with the totals so far, and a last one with the outcome."""

    @override
    def show(self, done: Replayed) -> None:
        out(json.dumps(self._figures(done)))

    @override
    def close(self, done: Replayed, stopped: str, error: str | None) -> None:
        outcome = "failed" if error else "stopped" if stopped else "done"
        out(json.dumps({"outcome": outcome, "error": error, **self._figures(done)}))

    def _figures(self, done: Replayed) -> dict[str, Any]:
        counts = {"entries": done.entries, "rows": done.rows, "rejected": done.rejected_again}
        return {"flow": self._flow.id, **counts}


def _display(as_json: bool, flow: Flow) -> _Display:
    if as_json:
        return _Json(flow)
    return _Terminal(flow) if sys.stdout.isatty() else _Lines(flow)
