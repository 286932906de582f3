"""What drives a folder of flows: Dagster, as the demo starts it, or `dataflow run`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from bench.fleet.graphql import ask
from dataflow_assets.spark import system
from dataflow_assets.spark.jars import ROOT
from dataflow_assets.spark.process import Server
from devservers.demo.dagster_dev import Dagster

HOURS = "14400"  # longer than any measurement
STATUS_SECONDS = 300
INGEST = "ingest"  # the sensor that looks for all flows
TICKS = """{ sensorsOrError(repositorySelector: {repositoryName: "__repository__",
repositoryLocationName: "dataflow-assets"}) { ... on Sensors { results { name sensorState {
ticks(limit: 20) { status skipReason error { message } } } } } } }"""

CLI = [sys.executable, "-m", "dataflow_assets.cli"]


@dataclass(eq=False, kw_only=True)
class Command(Server):
    """`dataflow run` on a folder, until it is stopped."""

    name = "run"
    port_names = ()
    stop_signal = signal.SIGINT
    stop_timeout = 60

    flows: Path

    @override
    def endpoints(self) -> dict[str, str]:
        return {"folder": str(self.flows)}

    @override
    def command(self) -> list[str]:
        return [*CLI, "run", str(self.flows), "--for", HOURS]

    @override
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(ROOT)}

    @override
    def ready(self) -> bool:
        return True


def _dagster(folder: Path, flows: Path) -> Server:
    variables = {"DATAFLOW_FLOWS": str(flows), "DATAFLOW_START": "1", "PYTHONPATH": str(ROOT)}
    (port,) = system.free_ports(1)
    return Dagster(folder / "dagster", port=port, variables=variables)


def _process(folder: Path, flows: Path) -> Server:
    return Command(folder / "run", flows=flows)


DRIVES: Mapping[str, Callable[[Path, Path], Server]] = {"dagster": _dagster, "process": _process}
"""By the name on the command line: given a folder for its files and the folder of the flows."""


def status(flows: Path) -> tuple[dict[str, str], str]:
    """What `dataflow status` says of flows that it finds wrong, by flow; and what it complains."""
    done = subprocess.run(
        [*CLI, "status", str(flows), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=STATUS_SECONDS,
    )
    answers = json.loads(done.stdout or '{"flows": []}')["flows"]
    return {each["flow"]: each["error"] for each in answers if each.get("error")}, done.stderr


def reasons(dagster: Dagster) -> dict[str, str]:
    """What the sensors' last ticks have said of failures, by sensor; the newest one."""
    return _failures(ask(dagster.url, TICKS)["sensorsOrError"]["results"])


def _failures(sensors: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    said = {each["name"]: map(_said, each["sensorState"]["ticks"]) for each in sensors}
    found = {name: next(filter(None, texts), "") for name, texts in said.items()}
    return {name: text for name, text in found.items() if text}


def _said(tick: Mapping[str, Any]) -> str:
    if tick["error"]:
        return str(tick["error"]["message"])
    reason = tick["skipReason"] or ""
    return reason if "failed" in reason or "cannot" in reason else ""
