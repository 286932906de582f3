"""Counts in this process: in memory at once, in the file every few seconds.

Called once for each micro-batch, never for a row. What goes wrong here is logged, and hinders no
flow.
"""

from __future__ import annotations

import atexit
import logging
import os
import sqlite3
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dataflow_assets.metrics.declarations import LANE_PROGRESS, Metric
from dataflow_assets.metrics.health import Health
from dataflow_assets.metrics.store import MetricsStore, Sample, Series

FLUSH_SECONDS = 5.0
TOUCH_SECONDS = 20.0  # between two writes of a gauge that stays as it is: it must not get stale

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Timing:
    """One phase of a micro-batch, in nanoseconds since 1970."""

    phase: str
    began: int
    ended: int

    @property
    def seconds(self) -> float:
        return (self.ended - self.began) / 1e9


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch that is over, for traces."""

    attributes: Mapping[str, str | int]
    timings: Sequence[Timing]
    error: str = ""
    """The class of the error that has ended it; its text may hold values of records."""


class Recorder:
    """The metrics of one process; its methods may be called by any thread."""

    def __init__(self, kept_in: MetricsStore | None) -> None:
        """`kept_in`: where they outlive the process; None: nowhere."""
        self._store, self._process = kept_in, os.getpid()
        self.health = Health()
        self._trace: Callable[[MicroBatch], None] = lambda _: None
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._counted: dict[Series, float] = defaultdict(float)
        self._added: dict[Series, float] = defaultdict(float)
        self._gauges: dict[Series, float] = {}
        self._written: dict[Series, float] = {}
        self._touched = float("-inf")
        """When all gauges were written last."""
        self._refreshed: dict[object, Callable[[], None]] = {}

    def start(self) -> None:
        """Writes every few seconds from now on, and once more when the process ends."""
        if self._store is not None:
            atexit.register(self.flush)
            threading.Thread(target=self._flush_on, name="metrics", daemon=True).start()

    def trace_by(self, trace: Callable[[MicroBatch], None]) -> None:
        """Each micro-batch that ends from now on is given to `trace`."""
        self._trace = trace

    def trace(self, batch: MicroBatch) -> None:
        """The micro-batch is over, with an error or without."""
        self._trace(batch)

    def count(self, metric: Metric, *labels: str, by: float = 1) -> None:
        self._add(Series(metric.name, labels), by)

    def observe(self, metric: Metric, *labels: str, value: float, times: int = 1) -> None:
        """So many observations of one value: all messages of a slice have the same."""
        if times:
            at = bisect_left(metric.buckets, value)
            self._add(Series(metric.name, labels, str(at)), times)
            self._add(Series(metric.name, labels, "sum"), value * times)

    def set(self, metric: Metric, *labels: str, value: float) -> None:
        with self._lock:
            self._gauges[Series(metric.name, labels)] = value

    def refresh_by(self, key: object, refresh: Callable[[], None]) -> None:
        """`refresh` is called before each write, until `forget`."""
        with self._lock:
            self._refreshed[key] = refresh

    def forget(self, key: object, flow: tuple[str, ...]) -> None:
        """The flow has ended here: everything of it is written, and its gauges are no more."""
        self.flush()
        with self._lock:
            self._refreshed.pop(key, None)
            self._gauges = {s: at for s, at in self._gauges.items() if s.labels[:2] != flow}

    def samples(self) -> list[Sample]:
        """Returns what this process alone has counted since it began."""
        self._refresh()
        with self._lock:
            return [Sample(*item) for item in (*self._counted.items(), *self._gauges.items())]

    def flush(self) -> None:
        """Writes what is new. What cannot be written now is written next time."""
        if self._store is None or self._process != os.getpid():
            return  # nowhere, or what the process counted that this one was forked from
        self._refresh()
        with self._writing:
            with self._lock:
                added, self._added = self._added, defaultdict(float)
                gauges = dict(self._gauges)
            now, before = time.monotonic(), self._written
            all_of_them = now - self._touched >= TOUCH_SECONDS
            new = {s: at for s, at in gauges.items() if all_of_them or before.get(s) != at}
            try:
                self._store.write(added, new)
                self._written = gauges
                self._touched = now if all_of_them else self._touched
            except (sqlite3.Error, OSError) as error:
                log.warning("metrics could not be written, and are next time: %s", error)
                with self._lock:
                    for series, value in added.items():
                        self._added[series] += value

    def _add(self, series: Series, by: float) -> None:
        with self._lock:
            self._counted[series] += by
            if self._store is not None:
                self._added[series] += by

    def _refresh(self) -> None:
        with self._lock:
            refreshed = list(self._refreshed.values())
        for refresh in refreshed:
            refresh()
        if self.health.lane and self.health.progressed:
            self.set(LANE_PROGRESS, self.health.lane, value=self.health.progressed)

    def _flush_on(self) -> None:
        ended = threading.Event()
        while not ended.wait(FLUSH_SECONDS):
            self.flush()
