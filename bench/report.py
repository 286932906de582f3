"""What was measured, as a table and as JSON."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from bench.fleet import table as fleet
from bench.meters import Spent

GROUPS = (
    "broker",
    "jvm",
    "workers",
    "driver",
    "connector",
    "postgresql",
    "seaweedfs",
    "clickhouse",
)


@dataclass(frozen=True)
class Target:
    """What a measure is compared with, and the least ratio."""

    bound: str
    least: float


TARGETS = {
    "flow-binary": Target("copy-binary", 0.34),
    "flow-mtls": Target("flow-binary", 0.7),
    "flow-steps": Target("flow-binary", 0.4),
    "flow-avro": Target("flow-binary", 0.8),
    "flow-numeric": Target("copy-numeric", 0.34),
    "flow-text": Target("copy-text", 0.30),
    "flow-iceberg": Target("flow-binary", 1.0),
    "flow-nessie": Target("flow-iceberg", 0.9),
    "flow-lake": Target("copy-lake", 0.6),
    "flow-clickhouse": Target("load-clickhouse", 0.9),
    "flow-topic": Target("copy-topic", 0.5),
    "flow-table": Target("copy-table", 0.6),
    "flow-cdc": Target("read-cdc", 0.6),
    "flow-first": Target("copy-first", 0.6),
    "flow-changes-1": Target("read-changes-1", 0.6),
    "flow-changes-100": Target("read-changes-100", 0.6),
    "flow-changes-100000": Target("read-changes-100000", 0.6),
    "flow-changes-lake-1": Target("read-changes-1", 0.6),
    "flow-changes-lake-100": Target("read-changes-100", 0.6),
    "flow-changes-lake-100000": Target("read-changes-100000", 0.6),
    "flow-trino": Target("fetch-trino", 0.6),
    "flow-justone-1": Target("copy-justone-1", 0.34),
    "flow-justone-2": Target("copy-justone-2", 0.34),
    "flow-connect-file": Target("worker-connect-file", 2.0),
    "flow-connect-debezium": Target("worker-connect-debezium", 2.0),
    "flow-new": Target("plain-new", 0.8),
    "flow-again": Target("plain-again", 0.8),
}
Rounds = Mapping[str, list[Spent]]


def figures(rounds: Rounds, counts: Mapping[str, int]) -> dict[str, Any]:
    """Each measure's medians, its rounds, and its ratio to the bound of the same round."""
    return {name: _figure(name, rounds, counts[name]) for name in rounds}


def _figure(name: str, rounds: Rounds, count: int) -> dict[str, Any]:
    spent, million = rounds[name], count / 1e6
    rates = [count / each.seconds for each in spent]
    cpu = {g: median(each.cpu.get(g, 0.0) / million for each in spent) for g in GROUPS}
    found = {
        "rows": count,
        "rows_per_second": median(rates),
        "rounds": rates,
        "cpu_seconds_per_million": cpu,
        "cpu_seconds_per_million_all": median(sum(each.cpu.values()) / million for each in spent),
        "cpu_rounds": [sum(each.cpu.values()) / million for each in spent],
        "peak_bytes": max(each.peak for each in spent),
    }
    return found | _against(name, rounds)


def _against(name: str, rounds: Rounds) -> dict[str, Any]:
    target = TARGETS.get(name)
    if target is None or target.bound not in rounds:
        return {}
    pairs = zip(rounds[target.bound], rounds[name], strict=False)
    ratios = [bound.seconds / flow.seconds for bound, flow in pairs]
    least, found = target.least, median(ratios)
    return {
        "bound": target.bound,
        "ratio": found,
        "ratios": ratios,
        "least": least,
        "passed": found >= least,
    }


def limit(found: float, most: float) -> dict[str, Any]:
    """A figure that has a bound of its own."""
    return {"found": found, "most": most, "passed": found <= most}


def passed(result: Mapping[str, Any]) -> bool:
    """Whether no figure misses its target, and none is over its limits."""
    groups = ("flows", "fleet", "trino", "justone", "changes", "connect", "sql")
    single = ("tiny", "age", "memory", "log-memory", "sql-memory")
    several = [figure for group in groups for figure in result.get(group, {}).values()]
    checked = [*several, *(result.get(name, {}) for name in single)]
    limits = [one for figure in several for one in figure.get("limits", {}).values()]
    return all(figure.get("passed", True) for figure in (*checked, *limits))


def machine() -> dict[str, Any]:
    """Where and when, and of which state of the code."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=False)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": head.stdout.strip(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "load": os.getloadavg(),
    }


def show(result: Mapping[str, Any]) -> None:
    """On the terminal."""
    console = Console(width=None if os.isatty(1) else 160)
    console.print(_line(result["machine"]))
    groups = ("flows", "trino", "justone", "changes", "connect")
    if flows := {name: one for group in groups for name, one in result.get(group, {}).items()}:
        console.print(_table(flows))
    for sentence in _sentences(result):
        console.print(sentence)
    fleet.show(console, result.get("fleet", {}))


def _line(where: Mapping[str, Any]) -> str:
    load = "/".join(f"{each:.1f}" for each in where["load"])
    size = f"{where['cores']} cores, {where['memory_gib']} GiB"
    return f"{where['date']}, commit {where['commit']}, {size}, load of the machine {load}"


def _table(found: Mapping[str, Any]) -> Table:
    table = Table(title="medians; CPU seconds per million rows; memory of driver, JVM and workers")
    heads = ("measure", "krows/s", "each round", "ratio", "each round", "cpu", *GROUPS, "MiB")
    for head in heads:
        table.add_column(head, justify="left" if head == "measure" else "right", overflow="fold")
    for name, figure in found.items():
        table.add_row(name, *_cells(figure))
    return table


def _cells(figure: Mapping[str, Any]) -> Iterator[str]:
    yield f"{figure['rows_per_second'] / 1e3:.0f}"
    yield " ".join(f"{rate / 1e3:.0f}" for rate in figure["rounds"])
    verdict = "" if figure.get("passed", True) else f" < {figure['least']}"
    yield f"{figure['ratio']:.2f}{verdict}" if "ratio" in figure else ""
    yield " ".join(f"{ratio:.2f}" for ratio in figure.get("ratios", []))
    yield f"{figure['cpu_seconds_per_million_all']:.2f}"
    yield from (f"{figure['cpu_seconds_per_million'][group]:.2f}" for group in GROUPS)
    yield f"{figure['peak_bytes'] >> 20}"


def _sentences(result: Mapping[str, Any]) -> Iterator[str]:
    for title, rates in result.get("steps", {}).items():
        found = ", ".join(f"{name} {rate / 1e3:.0f}" for name, rate in rates.items())
        yield f"steps, {title}, krows/s of processor time: {found}"
    if tiny := result.get("tiny"):
        steps = ", ".join(f"{name} {each * 1e3:.0f}" for name, each in tiny["steps"].items())
        yield (
            f"tiny micro-batch: median {tiny['median'] * 1e3:.0f} ms, p95 {tiny['p95'] * 1e3:.0f}, "
            f"least {tiny['least'] * 1e3:.0f} (medians of its steps: {steps})"
        )
    if age := result.get("age"):
        yield (
            f"from COMMIT to visible, at {age['changes_per_second']:.0f} changes/s: median "
            f"{age['median']:.2f} s, p95 {age['p95']:.2f}"
        )
    for name, one in result.get("log-memory", {}).get("cases", {}).items():
        groups = ", ".join(f"{k} {v >> 20}" for k, v in one["peak_by_group"].items())
        yield (
            f"{name}: {one['changes']} changes, {one['log_bytes'] >> 20} MiB of log, "
            f"{one['micro_batches']} micro-batches in {one['seconds']:.0f} s: peak "
            f"{one['peak_bytes'] >> 20} MiB ({groups}); largest process of PostgreSQL "
            f"{one['largest_process_of_postgresql'] >> 20} MiB"
        )
    yield from _limits(result.get("connect", {}))
    for name, found in result.get("sql", {}).items():
        yield (
            f"SQL, {name}: {found['ratio']:.2f} of one Spark job over the topic in steady spans, "
            f"{median(found['steady_rows_per_second']) / 1e3:.0f} krows/s, cpu "
            f"{found['flow_cpu']:.1f} beside {found['bound_cpu']:.1f} s for a million; a dozen "
            f"records in {found['few_median']:.2f} s"
        )
    if grown := result.get("sql-memory"):
        sizes = (
            f"{one['keys'] / 1e6:.0f} M keys {one['peak_bytes'] >> 20} MiB"
            for one in grown["sizes"]
        )
        yield f"SQL, memory by keys of the state: {', '.join(sizes)}"
    if memory := result.get("memory"):
        groups = ", ".join(f"{k} {v >> 20}" for k, v in memory["peak_by_group"].items())
        yield (
            f"{memory['messages']} waiting messages: peak {memory['peak_bytes'] >> 20} MiB "
            f"({groups}), allowed {memory['most_bytes'] >> 20}; {memory['seconds']:.0f} s"
        )


def _limits(figures: Mapping[str, Any]) -> Iterator[str]:
    for name, figure in figures.items():
        said = (
            f"{one['found']:.1f} {what} (at most {one['most']:g}"
            f"{'' if one['passed'] else ', missed'})"
            for what, one in figure.get("limits", {}).items()
        )
        if text := ", ".join(said):
            yield f"{name}: {text}"
