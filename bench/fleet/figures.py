"""What was seen as figures, beside what is wanted of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from bench.fleet.watch import Seen

GIB = 1 << 30


@dataclass(frozen=True)
class Figure:
    """One number and its bound."""

    name: str
    found: float
    unit: str = ""
    most: float | None = None
    least: float | None = None

    @property
    def passed(self) -> bool:
        """Whether it keeps its bound, if it has one."""
        above = self.least is not None and not self.found >= self.least
        return not above and (self.most is None or self.found <= self.most)

    @property
    def wanted(self) -> str:
        """The bound in words."""
        if self.most is not None:
            return f"at most {self.most:g}"
        return f"at least {self.least:g}" if self.least is not None else ""

    def as_json(self) -> dict[str, Any]:
        """With whether it passed."""
        return {**asdict(self), "passed": self.passed}


def quantile(values: Collection[float], share: float) -> float:
    """The least value that so large a share of them does not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1] if ordered else math.nan


def ages(seen: Seen, names: Collection[str], *bounds: float | None) -> list[Figure]:
    """Of all looks at all of these tables; bounds of median, 99 % and worst."""
    every = [age for name in names for age in seen.ages.get(name, ())]
    middle, high, _ = (*bounds, None, None, None)[:3]
    return [
        Figure("newest row, median", quantile(every, 0.5), "s", most=middle),
        Figure("newest row, 99 %", quantile(every, 0.99), "s", most=high),
        Figure("newest row, worst", quantile(every, 1.0), "s"),
    ]


def cores(seen: Seen, most: float | None = None) -> Figure:
    """CPU seconds a second."""
    return Figure("cores", sum(seen.cpu.values()) / seen.seconds, most=most)


def memory(seen: Seen, most: float | None = None) -> list[Figure]:
    """The median of the looks, which is compared, and the peak."""
    sums = [sum(each.pss for each in look.values()) / GIB for look in seen.memory]
    return [
        Figure("memory, median", quantile(sums, 0.5), "GiB", most=most),
        Figure("memory, peak", quantile(sums, 1.0), "GiB"),
    ]


def by_kind(seen: Seen) -> dict[str, dict[str, float]]:
    """By kind of process: cores, GiB, and how much of that is in shared pages."""
    kinds = sorted({kind for look in seen.memory for kind in look} | set(seen.cpu))
    return {kind: _of_kind(seen, kind) for kind in kinds}


def _of_kind(seen: Seen, kind: str) -> dict[str, float]:
    held = [look[kind] for look in seen.memory if kind in look]
    return {
        "cores": seen.cpu.get(kind, 0.0) / seen.seconds,
        "gib": median(each.pss for each in held) / GIB if held else 0.0,
        "shared_gib": median(each.shared for each in held) / GIB if held else 0.0,
    }


def around(seen: Seen) -> dict[str, float]:
    """The machine meanwhile: who else was busy can be seen by it."""
    return {
        "seconds": seen.seconds,
        "looks": len(seen.jvm),
        "machine_cores": seen.machine / seen.seconds,
        "highest_load": seen.busiest,
    }


def by_minute(seen: Seen) -> list[float]:
    """The median age of each minute: whether it grows."""
    looks = len(seen.jvm)
    minutes = (slice(first, first + 60) for first in range(0, looks, 60))
    every = ([age for ages in seen.ages.values() for age in ages[each]] for each in minutes)
    return [quantile(ages, 0.5) for ages in every]


def slowest(seen: Seen, count: int = 5) -> dict[str, float]:
    """The flows that were oldest at their worst."""
    worst = {name: max(ages) for name, ages in seen.ages.items() if ages}
    return dict(sorted(worst.items(), key=lambda item: -item[1])[:count])


def kept(
    sent: Mapping[str, int], held: Mapping[str, tuple[int, int]], unfinished: Collection[str] = ()
) -> dict[str, Any]:
    """Whether every message is in its table, and once. Those of `unfinished` may still wait."""
    doubled = sorted(name for name, (rows, distinct) in held.items() if rows != distinct)
    short = sorted(name for name, (_, distinct) in held.items() if distinct != sent[name])
    return {
        "produced": sum(sent[name] for name in held),
        "rows": sum(rows for rows, _ in held.values()),
        "whole": len(held) - len({*doubled, *short}),
        "doubled": doubled,
        "missing": [name for name in short if name not in unfinished],
        "passed": not doubled and set(short) <= set(unfinished),
    }


def passed(figures: Iterable[Figure], *more: Mapping[str, Any]) -> bool:
    """Whether all of it is as wanted."""
    return all(figure.passed for figure in figures) and all(each["passed"] for each in more)


def rate(progress: Sequence[tuple[float, int]]) -> float:
    """Rows a second from the first look to the last that saw more; NaN when none did."""
    moved = [now for before, now in pairwise(progress) if now[1] > before[1]]
    if not moved:
        return math.nan
    (began, already), (ended, rows) = progress[0], moved[-1]
    return (rows - already) / (ended - began)
