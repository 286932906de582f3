"""Kills by the clock: one every so many seconds, whatever the flow is doing just then.

The load at the source never stops for them, and nothing is compared in between: a flow that cannot
start, read on and commit between two kills falls behind, and never catches up.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import psutil

from tests.stress.chaos_kills import KILLS


class Struck(Protocol):
    """A flow under load, as the clock needs it."""

    chance: random.Random

    def strike_now(self, kind: str) -> bool:
        """Kills what the kind names; whether the flow was in the middle of a micro-batch."""

    def commits_since(self, moment: float) -> list[float]:
        """When the flow has committed since then, by the monotonic clock."""

    def load(self) -> None:
        """Sees to it that the source changes."""


@dataclass
class ByTheClock:
    """What was killed, and how the flow got on between two kills."""

    every: float
    kills: Counter[str] = field(default_factory=Counter)
    met: int = 0
    """Kills in the middle of a micro-batch."""
    load: list[float] = field(default_factory=list)
    """The machine's load at each kill."""
    recovered: list[float] = field(default_factory=list)
    """Of each kill the seconds until the flow has committed again, before the next one."""

    @property
    def barren(self) -> int:
        """Kills after which nothing was committed before the next one."""
        return self.kills.total() - len(self.recovered)

    def expect_progress(self) -> None:
        """Raises AssertionError where nothing was committed between most of the kills."""
        assert self.barren * 2 < self.kills.total(), f"no progress between kills: {self}"

    def line(self) -> str:
        """A line of the page's table."""
        listed = ", ".join(f"{number} {kind}" for kind, number in sorted(self.kills.items()))
        middle, most = statistics.median(self.recovered or [0]), max(self.recovered, default=0)
        counts = f"{self.every:g} s | {self.kills.total()} | {listed} | {self.met} | {self.barren}"
        return f"| {counts} | {middle:.1f} s | {most:.1f} s | {statistics.fmean(self.load):.0f} |"


def kill_by_the_clock(
    flow: Struck, kinds: Sequence[str], every: float, seconds: float
) -> ByTheClock:
    """Kills for so long.

    Args:
        flow: with a load that goes on.
        kinds: what is killed, each as often as the others.
        every: seconds from one kill to the next.
        seconds: in all.

    Returns:
        What the caller compares the copy after, and then checks for progress.
    """
    found = ByTheClock(every)
    begin = time.monotonic()
    for number, kind in enumerate(_dealt(flow.chance, kinds, int(seconds / every)), 1):
        due = begin + number * every
        flow.load()
        time.sleep(max(0.0, due - time.monotonic()))
        struck = time.monotonic()
        found.met += flow.strike_now(kind)
        found.kills[kind] += 1
        found.load.append(psutil.getloadavg()[0])
        _wait(flow, struck, due + every, found)
        sys.stderr.write(f"{number} kills by the clock: {kind}; {found.line()}\n")
    return found


def _wait(flow: Struck, struck: float, until: float, found: ByTheClock) -> None:
    while time.monotonic() < until - 0.5:
        if commits := flow.commits_since(struck):
            found.recovered.append(commits[0] - struck)
            return
        time.sleep(0.05)


def _dealt(chance: random.Random, kinds: Sequence[str], number: int) -> Iterator[str]:
    deck: list[str] = []
    for _ in range(number):
        deck = deck or chance.sample(kinds, len(kinds))
        yield deck.pop()


def kinds_by_the_clock(kinds: Sequence[str]) -> tuple[str, ...]:
    """Those that are over at once: a pause lasts, and so does the start of Spark's own server."""
    return tuple(kind for kind in kinds if kind in KILLS and kind != "spark")
