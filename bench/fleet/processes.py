"""The processes of a measurement: found by a mark in their environment, told apart by command.

The mark also finds what has left the tree, as the warm Spark server does. What hides its
environment, as the processes of PostgreSQL do, is found by its parent.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from dataflow_assets.spark import system

MARK = "DATAFLOW_BENCH_MARK"
TICKS = os.sysconf("SC_CLK_TCK")

PROGRAMS = {
    "postgres": "postgresql",
    "postgres:": "postgresql",
    "weed": "seaweedfs",
    "chromium": "browser",
    "chrome": "browser",
}
MODULES = (
    ("kafka.Kafka", "broker"),
    ("org.apache.spark.deploy.SparkSubmit", "spark jvm"),
    ("pyspark.daemon", "python workers"),
    ("dagster._daemon", "dagster daemon"),
    ("dagster_webserver", "dagster webserver"),
    ("dagster api", "code server"),
    ("dagster code-server", "code server"),
    ("dagster dev", "dagster dev"),
    ("dataflow_assets.cli run", "run"),
    ("dataflow_assets.cli status", "measuring"),
    ("dataflow_assets.cli demo", "demo"),
    ("bench.fleet.messages", "producer"),
    ("devservers.clickhouse_http", "clickhouse"),
)
"""What is run, by the words of the command. The first that fits counts."""
APART = {"producer", "browser", "measuring"}
"""What only the measurement needs is not counted."""
JVM = "spark jvm"

T = TypeVar("T")
Key = tuple[int, int]
"""Number and start: who a process is."""


@dataclass(frozen=True)
class Process:
    """One process at one moment."""

    parent: int
    kind: str
    own: float
    """Seconds of CPU."""
    buried: float
    """Seconds of those children that have ended, and of theirs."""


Look = Mapping[Key, Process]


@dataclass(frozen=True)
class Memory:
    """Bytes, proportional: a page that several processes share counts once, a part for each."""

    pss: int = 0
    shared: int = 0
    """As much of it is in pages that are shared."""

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.pss + other.pss, self.shared + other.shared)


def kind(command: Sequence[str], parent: str | None) -> str:
    """What a process is; a helper without a name of its own is what its parent is.

    What the code server starts is a run.
    """
    program = Path((" ".join(command[:1]) or "-").split(" ")[0]).name
    if program in PROGRAMS:
        return PROGRAMS[program]
    words = f"{' '.join(command)} "
    inherited = "run" if parent == "code server" else parent or "other"
    return next((name for text, name in MODULES if f" {text} " in words), inherited)


def spent(before: Look, after: Look) -> dict[str, float]:
    """CPU seconds by kind between two looks, with those of processes that have ended meanwhile."""
    found: defaultdict[str, float] = defaultdict(float)
    for key, now in after.items():
        then = before.get(key)
        found[now.kind] += now.own - (then.own if then else 0.0)
        ended = list(_ended(key[0], before, after))
        known = sum(each.own + each.buried for each in ended)
        unseen = now.buried - (then.buried if then else 0.0) - known
        found[ended[0].kind if ended else now.kind] += max(unseen, 0.0)
    return found


def _ended(pid: int, before: Look, after: Look) -> Iterator[Process]:
    """The children of a process that are gone, each before its own that are gone."""
    for key, each in before.items():
        if each.parent == pid and key not in after:
            yield each
            yield from _ended(key[0], before, after)


class Tree:
    """All processes with the mark; the numbers of `apart` are not looked at."""

    def __init__(self, mark: str, apart: Collection[int] = ()) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._apart = apart
        self._ours: set[Key] = set()

    def look(self) -> dict[Key, Process]:
        """Those that live."""
        stats = dict(_stats())
        parents = {pid: int(stat[1]) for pid, stat in stats.items()}
        ours = {pid for pid, stat in stats.items() if self._is_ours((pid, int(stat[19])))}
        ours |= {pid for pid in stats if ours.intersection(_ancestors(pid, parents))}
        kinds: dict[int, str] = {}
        for pid in sorted(ours, key=lambda pid: len(list(_ancestors(pid, parents)))):
            kinds[pid] = kind(_command(pid), kinds.get(parents[pid]))
        wanted = ours.difference(self._apart)
        return {(pid, int(stats[pid][19])): _process(stats[pid], kinds[pid]) for pid in wanted}

    def _is_ours(self, key: Key) -> bool:
        if key not in self._ours and self._mark in _environment(key[0]):
            self._ours.add(key)
        return key in self._ours


def memory(look: Look) -> dict[str, Memory]:
    """What the processes of each kind hold."""
    found: dict[str, Memory] = {}
    for (pid, _), process in look.items():
        found[process.kind] = found.get(process.kind, Memory()) + _memory(pid)
    return found


def end(mark: str, patience: float = 10) -> list[str]:
    """Ends what is left with the mark; the commands of what it was."""
    look = Tree(mark).look()
    left = [process for pid, started in look if (process := _psutil(pid, started))]
    commands = [" ".join(_command(process.pid))[:200] for process in left]
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    for process in system.wait(left, patience):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return commands


def _psutil(pid: int, started: int) -> psutil.Process | None:
    """It, not another process that has its number by now."""
    with suppress(psutil.NoSuchProcess, OSError):
        process = psutil.Process(pid)
        return process if system.start_ticks(pid) == started else None
    return None


def _stats() -> Iterator[tuple[int, list[str]]]:
    """The fields of each process behind its name, which may hold blanks and brackets."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                yield int(entry.name), (entry / "stat").read_text().rpartition(")")[2].split()


def _process(stat: Sequence[str], kind: str) -> Process:
    user, system, ended_user, ended_system = (int(text) / TICKS for text in stat[11:15])
    return Process(int(stat[1]), kind, user + system, ended_user + ended_system)


def _ancestors(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    while pid := parents.get(pid, 0):
        yield pid


def _environment(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def _command(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0").split("\0")
    return []


def _memory(pid: int) -> Memory:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        size = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines}
        pss = size.get("Pss", 0)
        return Memory(
            pss, max(pss - size.get("Private_Clean", 0) - size.get("Private_Dirty", 0), 0)
        )
    return Memory()
