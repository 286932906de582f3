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
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from functools import cache

from dataflow_assets.metrics.declarations import LANE_PROGRESS, Metric
from dataflow_assets.metrics.health import Health
from dataflow_assets.metrics.store import MetricsStore, Sample, Series, store

FLUSH_SECONDS = 5.0

log = logging.getLogger(__name__)


class Recorder:
    """The metrics of one process; its methods may be called by any thread."""

    def __init__(self, kept_in: MetricsStore | None) -> None:
        """`kept_in`: where they outlive the process; None: nowhere."""
        self._store, self._process = kept_in, os.getpid()
        self.health = Health()
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._counted: dict[Series, float] = defaultdict(float)
        self._added: dict[Series, float] = defaultdict(float)
        self._gauges: dict[Series, float] = {}
        self._refreshed: dict[object, Callable[[], None]] = {}

    def start(self) -> None:
        """Writes every few seconds from now on, and once more when the process ends."""
        if self._store is not None:
            atexit.register(self.flush)
            threading.Thread(target=self._flush_on, name="metrics", daemon=True).start()

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
            try:
                self._store.write(added, gauges)
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


def recorder() -> Recorder:
    """That of this process; made by the first flow that runs in it."""
    return _recorder_of(os.getpid())


@cache
def _recorder_of(process: int) -> Recorder:
    del process
    made = Recorder(store())
    made.start()
    return made
