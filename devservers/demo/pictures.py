"""The pictures of the README, taken from a demo that has come to rest: `make pictures`.

A shop's orders are in the topic, each flow has stored them, and no run is active. A headless
Chromium opens Dagster's own pages; the recording shows commands with what they really print, then
the graph.
"""

from __future__ import annotations

import html
import io
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
from confluent_kafka import Producer
from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright
from typing_extensions import override

from dataflow_assets.spark.jars import ROOT
from dataflow_assets.spark.process import ServerError
from devservers.demo.demo import printed
from devservers.demo.orders import PARTITIONS, TOPIC, OrdersDemo
from devservers.demo.shop import JSON, Shop

PICTURES = ROOT / "docs" / "pictures"
OFFSET = 2000  # beside another demo
ORDERS = 6_000
CHROMIUM = os.environ.get("CHROMIUM") or "/usr/bin/chromium"
WIDE = ViewportSize(width=1360, height=820)
GRAPH = ViewportSize(width=1700, height=1760)
RECORDED = ViewportSize(width=900, height=560)
GRAPH_LEFT, GRAPH_TOP, GRAPH_RIGHT = 544, 112, 50  # the list of groups, the search, the zoom
COMMANDS = (
    "dataflow check flows/orders.yaml",
    "dataflow preview flows/orders.yaml --limit 1",
    "dataflow status flows/",
)
TERMINAL = """<body style="margin:0;background:#14161b;color:#d6dae0">
<pre style="font:12px/1.35 'DejaVu Sans Mono',monospace;padding:18px;white-space:pre-wrap">{}
</pre>"""
STALE = "{assetNodes {staleStatus}}"
ACTIVE = "{runsOrError(filter: {statuses: [QUEUED, STARTING, STARTED]}) {... on Runs {count}}}"
PATIENCE_SECONDS = 900.0


class PicturedDemo(OrdersDemo):
    """The orders of an hour at once, none of which is rejected; nothing comes afterwards."""

    @override
    def open_shop(self, stack: ExitStack) -> None:
        self.make_topics({TOPIC: PARTITIONS})
        self._shop = Shop()
        self.send(3600)

    def send(self, seconds: int) -> None:
        """Orders of so many seconds, all at once."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        begin = time.time() - seconds
        for second in range(seconds):
            for order in self._shop.changes(begin + second, 2 if second % 3 else 1):
                producer.produce(TOPIC, JSON.encode(order), str(order["id"]).encode())
            producer.poll(0)
        producer.flush(60)

    def variables(self) -> dict[str, str]:
        """Only the demo's own manifests."""
        return super().variables() | {"DATAFLOW_FLOWS": str(self.manifests)}

    def rests(self) -> bool:
        """Whether every flow has stored everything, the revenue is counted, and no run is left."""
        try:
            with psycopg.connect(self.dsn()) as connection:
                connection.execute("SELECT 1 FROM shop.daily_revenue LIMIT 1").fetchone()
        except psycopg.Error:
            return False
        flows = json.loads(printed_by("dataflow status --json flows/", self._folder))["flows"]
        branches = [branch for flow in flows for branch in flow["branches"]]
        stored = [branch for branch in branches if branch["lag_records"] == 0]
        return len(branches) >= len(flows) and stored == branches and self._active() == 0

    def in_sync(self) -> bool:
        """The same, and Dagster shows no asset as unsynced."""
        nodes = self._asked(STALE)["assetNodes"]
        return self.rests() and all(node["staleStatus"] == "FRESH" for node in nodes)

    def _active(self) -> int:
        return int(self._asked(ACTIVE)["runsOrError"]["count"])

    def _asked(self, query: str) -> Any:
        body = json.dumps({"query": query}).encode()
        request = urllib.request.Request(  # noqa: S310 (ours)
            f"{self.dagster.url}/graphql", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (ours)
            return json.load(answer)["data"]


def printed_by(command: str, folder: Path, *, terminal: bool = False) -> str:
    """What a command of ours prints, in the folder above the manifests; as on a terminal or not."""
    words, (reading, writing) = command.split(), pty.openpty()
    done = subprocess.run(
        [Path(sys.executable).with_name(words[0]), *words[1:]],
        cwd=folder,
        env=os.environ
        | {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "DATAFLOW_FILES": str(folder)},
        stdout=writing if terminal else subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    os.close(writing)
    with os.fdopen(reading, "rb", 0) as screen:
        return screen.read(60_000).decode() if terminal else done.stdout


def main() -> None:
    """Starts the demo, waits until it rests, and writes the pictures."""
    folder = ROOT / ".data" / "pictures"
    shutil.rmtree(folder, ignore_errors=True)  # counts in the pictures are of one demo
    demo = PicturedDemo(folder, OFFSET, printed)
    demo.check()
    signal.signal(signal.SIGTERM, _ended)
    with ExitStack() as stack:
        if demo.start(stack, threading.Event()):
            _until(demo.rests)
            demo.send(60)  # the first runs wait for tables of others; these are of one lane
            _until(demo.in_sync)
            _take(demo, folder)


def _ended(_: int, __: FrameType | None) -> None:
    """The servers are stopped on the way out."""
    sys.exit(143)


def _until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not done():
        if time.monotonic() > end:
            raise ServerError(f"the demo did not come to rest within {PATIENCE_SECONDS:.0f} s")
        time.sleep(5)


def _take(demo: PicturedDemo, folder: Path) -> None:
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=WIDE)
        page.set_default_timeout(120_000)  # milliseconds: a busy machine draws slowly
        page.set_viewport_size(GRAPH)
        _page(page, f"{demo.dagster.url}/asset-groups", 12)
        graph = _graph(page)
        page.set_viewport_size(WIDE)
        _save(graph, "graph.png")
        _page(page, f"{demo.dagster.url}/assets/postgresql/shop/public/orders?view=overview", 10)
        page.get_by_text("Metadata", exact=True).last.scroll_into_view_if_needed()
        page.mouse.move(600, 500)
        page.mouse.wheel(0, 560)
        page.wait_for_timeout(2000)
        _save(_shot(page), "asset.png")
        _page(page, f"{demo.dagster.url}/locations/dataflow-assets/sensors/orders_sensor", 10)
        _save(_shot(page), "sensor.png")
        page.set_viewport_size(RECORDED)
        frames = [*_terminal(page, folder), (_fitted(graph), 5000)]
        browser.close()
    _record(frames)


def _page(page: Page, url: str, seconds: float) -> None:
    """Opens it; Dagster's pages fill themselves after they are loaded."""
    page.goto(url, wait_until="load", timeout=120_000)
    page.wait_for_timeout(seconds * 1000)


def _graph(page: Page) -> Image.Image:
    """The whole graph, with all groups open and without the pages' own frame."""
    names = page.locator("svg").get_by_text("_").all_inner_texts()
    for name in dict.fromkeys(names):
        page.locator("svg").get_by_text(name, exact=True).last.click()
        page.wait_for_timeout(4000)
        # Remembers the open groups, and shows the whole graph: a group outside of it has no text.
        page.reload(wait_until="load")
        page.wait_for_timeout(8000)
    page.mouse.move(5, 5)
    picture = _shot(page)
    return picture.crop((GRAPH_LEFT, GRAPH_TOP, picture.width - GRAPH_RIGHT, picture.height))


def _shot(page: Page) -> Image.Image:
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def _save(picture: Image.Image, name: str) -> None:
    """With 128 colours, which these pages do not exceed by much: a third of the size."""
    PICTURES.mkdir(exist_ok=True)
    picture.quantize(128).save(PICTURES / name, optimize=True)
    printed(f"{PICTURES / name}: {(PICTURES / name).stat().st_size // 1024} KiB")


def _fitted(picture: Image.Image) -> Image.Image:
    size = (RECORDED["width"], RECORDED["height"])
    whole = Image.new("RGB", size, "white")
    small = picture.copy()
    small.thumbnail(size)
    whole.paste(small, ((size[0] - small.width) // 2, (size[1] - small.height) // 2))
    return whole


def _terminal(page: Page, folder: Path) -> Iterator[tuple[Image.Image, int]]:
    """Each command as it is typed, then with what it prints; each with its milliseconds."""
    for command in COMMANDS:
        said = printed_by(command, folder, terminal=True).strip().splitlines()[:29]
        for text, milliseconds in (
            (f"$ {command}", 900),
            ("\n".join([f"$ {command}", *said]), 4000),
        ):
            page.set_content(TERMINAL.format(html.escape(text)))
            yield _shot(page), milliseconds


def _record(frames: list[tuple[Image.Image, int]]) -> None:
    pictures = [frame.quantize(48) for frame, _ in frames]
    file = PICTURES / "recording.gif"
    pictures[0].save(
        file,
        save_all=True,
        append_images=pictures[1:],
        duration=[milliseconds for _, milliseconds in frames],
        loop=0,
        optimize=True,
    )
    printed(f"{file}: {file.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
