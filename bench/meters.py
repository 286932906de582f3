"""CPU seconds and memory by group of processes, from /proc."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import psutil

from bench.places import Places

OURS = ("driver", "jvm", "workers")  # what the bound of memory is about
EVERY = 0.5  # seconds between two looks at memory

Seconds = dict[str, float]
Clocks = dict[tuple[str, int], float]


def cpu(places: Places) -> Clocks:
    """CPU seconds so far, by group and process.

    What a server has forked and waited for counts as its own; a worker's end is its own loss.
    """
    found: Clocks = {}
    for name, processes in places.groups().items():
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                spent = times.user + times.system
                if name not in OURS:
                    spent += times.children_user + times.children_system
                found[name, process.pid] = spent
    return found


def between(before: Clocks, after: Clocks) -> Seconds:
    """What the groups have spent since."""
    found: Seconds = {}
    for (name, pid), spent in after.items():
        found[name] = found.get(name, 0.0) + spent - before.get((name, pid), 0.0)
    return found


def memory(places: Places) -> Mapping[str, int]:
    """Proportional set size of what is ours: shared pages count once."""
    groups = places.groups()
    return {name: sum(map(pss, groups[name])) for name in OURS}


def pss(process: psutil.Process) -> int:
    """Of one process; 0 where it is gone."""
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return int(process.memory_full_info().pss)
    return 0


@dataclass
class Spent:
    """What a measurement has cost."""

    seconds: float = 0.0
    cpu: Seconds = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    """At the peak of their sum."""

    @property
    def peak(self) -> int:
        """The most bytes that driver, JVM and workers held together."""
        return sum(self.memory.values())


class Meter:
    """Measures what happens inside its `with` block."""

    def __init__(self, places: Places, watch: Callable[[Spent], None] | None = None) -> None:
        self._places = places
        self._watch = watch
        self._over = threading.Event()
        self._own = 0.0
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.spent = Spent()

    def __enter__(self) -> Self:
        self._before = cpu(self._places)
        self._thread.start()
        self._begun = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.spent.seconds = time.monotonic() - self._begun
        self._over.set()
        self._thread.join()
        self.spent.cpu = between(self._before, cpu(self._places))
        self.spent.cpu["driver"] -= self._own  # looking at memory is no part of what is measured

    def _sample(self) -> None:
        while True:
            found = memory(self._places)
            if sum(found.values()) > self.spent.peak:
                self.spent.memory = found
            if self._watch is not None:
                self._watch(self.spent)
            self._own = time.thread_time()
            if self._over.wait(EVERY):
                return
