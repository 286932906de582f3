"""The demo as it is started by hand: what it costs, and how soon Dagster's pages answer."""

from __future__ import annotations

import os
import random
import signal
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from typing_extensions import override

from bench.fleet import figures
from bench.fleet.browser import NoBrowserError, browser
from bench.fleet.drives import CLI
from bench.fleet.figures import Figure
from bench.fleet.graphql import ask
from bench.fleet.ground import marked
from bench.fleet.running import SETTLE, Order
from bench.fleet.watch import Watch
from dataflow_assets.spark import system
from dataflow_assets.spark.jars import ROOT
from dataflow_assets.spark.process import LOOPBACK, Server
from devservers.demo.dagster_dev import WEB
from devservers.demo.demo import OFFSET, POSTGRESQL, SPARK
from devservers.demo.orders import KAFKA, OrdersDemo
from devservers.demo.topics import CLICKHOUSE, SEAWEEDFS

PORTS = [
    WEB,
    *(
        port
        for ports in (KAFKA, POSTGRESQL, SEAWEEDFS, CLICKHOUSE, SPARK)
        for port in ports.values()
    ),
]
EXAMPLES = ROOT / "examples" / OrdersDemo.name
LOADS = 10
SHARE = 0.7  # of all cores
RUNS = "{ runsOrError(limit: 1) { ... on Runs { results { id } } } }"


@dataclass(eq=False, kw_only=True)
class Demo(Server):
    """`dataflow demo` on free ports."""

    name = "demo"
    port_names = ()
    start_timeout = 400
    stop_timeout = 120
    stop_signal = signal.SIGINT

    offset: int

    @property
    def url(self) -> str:
        """Of Dagster."""
        return f"http://{LOOPBACK}:{WEB + self.offset}"

    @override
    def endpoints(self) -> dict[str, str]:
        return {"url": self.url}

    @override
    def command(self) -> list[str]:
        return [*CLI, "demo", "--folder", str(self.folder / "data")]

    @override
    def environment(self) -> dict[str, str]:
        return {OFFSET: str(self.offset), "PYTHONPATH": str(Path(__file__).parents[2])}

    @override
    def ready(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/server_info", timeout=2) as answer:  # noqa: S310 (ours)
            return bool(answer.status == 200)


def demo(order: Order, folder: Path) -> dict[str, Any]:
    """First what it costs without a browser, then ten loads of each page."""
    with marked(folder) as mark, Demo(folder / "demo", offset=_offset()) as server:
        time.sleep(SETTLE)
        seen = Watch(mark, dict, ()).watch(order.seconds)
        loads, skipped = _loads(server, folder / "browser")
    most = SHARE * (os.cpu_count() or 1)
    found = [figures.cores(seen, most), *figures.memory(seen)]
    found += [
        Figure(f"{page} page, median", median(each), "s", most=2) for page, each in loads.items()
    ]
    return {
        "flows": sum("kind: DataFlow" in file.read_text() for file in EXAMPLES.glob("*.yaml")),
        "drive": "dagster",
        "figures": [figure.as_json() for figure in found],
        "by_kind": figures.by_kind(seen),
        "around": figures.around(seen),
        "loads": loads,
        "skipped": skipped,
        "passed": figures.passed(found) and not skipped,
    }


def _offset() -> int:
    """By which all ports of the demo move to free ones."""
    tries = (random.randrange(1, 9_000) for _ in range(100))
    return next(each for each in tries if all(system.is_free(port + each) for port in PORTS))


def _loads(server: Demo, folder: Path) -> tuple[dict[str, list[float]], str]:
    """Seconds by page; or why there are none."""
    pages = dict(_pages(server))
    try:
        with browser(folder) as tab:
            return {
                name: [tab.load(f"{server.url}{path}", text) for _ in range(LOADS)]
                for name, (path, text) in pages.items()
            }, ""
    except NoBrowserError as error:
        return {}, str(error)


def _pages(server: Demo) -> Iterator[tuple[str, tuple[str, str]]]:
    """Where each page is, and what it shows once it is there."""
    run = _newest_run(server)
    yield "graph", ("/asset-groups", "postgresql_shop")
    yield "asset", ("/assets/postgresql/shop/public/orders", "Latest materialization")
    yield "run", (f"/runs/{run}", "Launched by")


def _newest_run(server: Demo) -> str:
    return str(ask(server.url, RUNS)["runsOrError"]["results"][0]["id"])
