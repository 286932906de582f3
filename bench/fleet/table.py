"""What was measured of a fleet, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.fleet.figures import Figure


def show(console: Console, found: Mapping[str, Mapping[str, Any]]) -> None:
    """A table and some sentences for each case."""
    for name, case in found.items():
        if "error" in case:
            console.print(f"{name}: not measured: {case['error']}", markup=False)
            continue
        console.print(_figures(f"{name}: {case['flows']} flows, drive {case['drive']}", case))
        for sentence in sentences(case):
            console.print(sentence, markup=False)


def _figures(title: str, case: Mapping[str, Any]) -> Table:
    table = Table("", "found", "wanted", "", title=title)
    for each in case["figures"]:
        figure = Figure(*(each[key] for key in ("name", "found", "unit", "most", "least")))
        verdict = "" if figure.passed else "missed"
        table.add_row(figure.name, f"{figure.found:,.2f} {figure.unit}", figure.wanted, verdict)
    return table


def sentences(case: Mapping[str, Any]) -> Iterator[str]:
    """What does not fit into the table."""
    kinds = sorted(case["by_kind"].items(), key=lambda item: -item[1]["cores"])
    yield "cores, GiB (shared): " + "; ".join(
        f"{kind} {each['cores']:.2f}, {each['gib']:.2f} ({each['shared_gib']:.2f})"
        for kind, each in kinds
    )
    around = case["around"]
    yield (
        f"watched {around['seconds']:.0f} s in {around['looks']} looks; the whole machine was busy "
        f"with {around['machine_cores']:.2f} cores, highest load {around['highest_load']:.1f}"
    )
    for kept in case.get("kept", []):
        yield _kept(kept)
    if case.get("slowest"):
        oldest = ", ".join(f"{name} {age:.0f} s" for name, age in case["slowest"].items())
        yield f"oldest at their worst: {oldest}"
    for name, reason in [*case.get("status", {}).items(), *case.get("sensors", {}).items()][:3]:
        yield f"for example {name}: {reason}"
    if case.get("skipped"):
        yield f"pages not loaded: {case['skipped']}"


def _kept(kept: Mapping[str, Any]) -> str:
    wrong = [f"{what}: {', '.join(kept[what])}" for what in ("doubled", "missing") if kept[what]]
    said = "; ".join(wrong) or "every message is there once, or waits as it may"
    return f"{kept['rows']:,} rows of {kept['produced']:,} messages: {said}"
