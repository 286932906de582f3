"""Looks at a fleet once a second: how old each table's newest row is, CPU, and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil
import psycopg

from bench.fleet import processes
from bench.fleet.ground import Ground
from bench.fleet.manifests import SCHEMA, Member
from bench.fleet.processes import JVM, Memory, Tree

EVERY = 1.0
MEMORY_EVERY = 5  # looks: reading it takes the kernel longer than all the rest
CONSUMED = f"""SELECT flow, sum(rows) FROM {SCHEMA}.dataflow_checkpoint_partition
GROUP BY flow""".encode()


@dataclass
class Seen:
    """What was seen; CPU and memory of all that counts."""

    began: float = field(default_factory=time.time)
    seconds: float = 0.0
    ages: dict[str, list[float]] = field(default_factory=dict)
    """By flow: at each look, how long ago its newest visible row was produced."""
    cpu: dict[str, float] = field(default_factory=dict)
    memory: list[dict[str, Memory]] = field(default_factory=list)
    jvm: list[bool] = field(default_factory=list)
    """At each look, whether a JVM of Spark lived."""
    machine: float = 0.0
    """Seconds that all cores together were busy, whatever for: ours, the looks, and strangers."""
    busiest: float = 0.0
    """The highest load of the machine, its average over a minute."""


class Watch:
    """Looks at processes, and at tables through a connection of its own, which is not counted."""

    def __init__(self, mark: str, ages: Callable[[], Mapping[str, float]], apart: Sequence[int]):
        self._tree, self._ages = Tree(mark, apart), ages

    def watch(self, seconds: float, until: Callable[[], bool] = lambda: False) -> Seen:
        """For so long, or until it is enough."""
        seen, before, busy = Seen(), self._tree.look(), _busy()
        begun, looks = time.monotonic(), 0
        while (now := time.monotonic()) < begun + seconds and not until():
            time.sleep(max(begun + (looks + 1) * EVERY - now, 0.0))
            after = self._tree.look()
            self._add(seen, before, after)
            if looks % MEMORY_EVERY == 0:
                seen.memory.append(_counted(processes.memory(after)))
            before, looks = after, looks + 1
        seen.seconds, seen.machine = time.monotonic() - begun, _busy() - busy
        return seen

    def _add(self, seen: Seen, before: processes.Look, after: processes.Look) -> None:
        for kind, seconds in _counted(processes.spent(before, after)).items():
            seen.cpu[kind] = seen.cpu.get(kind, 0.0) + seconds
        seen.jvm.append(any(each.kind == JVM for each in after.values()))
        seen.busiest = max(seen.busiest, psutil.getloadavg()[0])
        for name, age in self._ages().items():
            seen.ages.setdefault(name, []).append(age)

    def jvm(self) -> bool:
        """Whether a JVM of Spark lives."""
        return any(each.kind == JVM for each in self._tree.look().values())


class Tables:
    """The newest rows of all tables, by one query."""

    def __init__(self, connection: psycopg.Connection, flows: Sequence[Member]) -> None:
        self.connection, self._began = connection, time.time()
        parts = (f"SELECT '{flow.name}', max(produced) FROM {flow.table}" for flow in flows)
        self._query = " UNION ALL ".join(parts).encode()

    def newest(self) -> dict[str, float | None]:
        """By flow: when its newest visible row was produced."""
        return dict(self.connection.execute(self._query).fetchall()) if self._query else {}

    def ages(self) -> dict[str, float]:
        """By flow: so long ago; without a row as long as there have been messages."""
        newest = self.newest()
        now = time.time()
        return {name: now - (at or self._began) for name, at in newest.items()}

    def unserved(self) -> list[str]:
        """The flows whose tables hold no row."""
        return [name for name, at in self.newest().items() if at is None]

    def consumed(self) -> dict[str, int]:
        """By flow: its committed rows, by its checkpoint; to count millions would take CPU."""
        try:
            rows = self.connection.execute(CONSUMED).fetchall()
        except psycopg.errors.UndefinedTable:  # no flow has begun
            return {}
        return {name.partition("/")[2]: int(count) for name, count in rows}


@contextmanager
def tables(ground: Ground, flows: Sequence[Member]) -> Iterator[Tables]:
    """As long as there is something to see."""
    with ground.connected() as connection:
        yield Tables(connection, flows)


def _counted(by_kind: Mapping[str, processes.T]) -> dict[str, processes.T]:
    return {kind: each for kind, each in by_kind.items() if kind not in processes.APART}


def _busy() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)
