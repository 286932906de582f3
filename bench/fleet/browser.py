"""A headless Chromium that loads pages, driven by its own protocol."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
LISTENS = re.compile(r"DevTools listening on (ws://\S+)")
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
LOADING = "Loading"  # stands where Dagster's page waits for something
START_SECONDS, LOAD_SECONDS, LOOK = 30.0, 60.0, 0.05


class NoBrowserError(Exception):
    """There is none on this machine."""


class Browser:
    """One tab."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection, self._numbers = connection, itertools.count(1)
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        found = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session: str | None = found["sessionId"]

    def load(self, url: str, text: str) -> float:
        """Seconds until the page shows the text and loads nothing more; infinite after a minute."""
        self._call("Page.navigate", url="about:blank")
        begun = time.monotonic()
        self._call("Page.navigate", url=url)
        while time.monotonic() < begun + LOAD_SECONDS:
            if text in (shown := self._shown(url)) and LOADING not in shown:
                return time.monotonic() - begun
            time.sleep(LOOK)
        return math.inf

    def _shown(self, url: str) -> str:
        """What the page says by now; nothing as long as it is still the one before."""
        script = f"location.href.startsWith({json.dumps(url)}) ? document.body.innerText : ''"
        answer = self._call("Runtime.evaluate", expression=script)
        return str(answer.get("result", {}).get("value") or "")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        order = {"id": number, "method": method, "params": parameters}
        session = getattr(self, "_session", None)
        self._connection.send(json.dumps(order | ({"sessionId": session} if session else {})))
        while True:
            answer = json.loads(self._connection.recv(timeout=LOAD_SECONDS))
            if answer.get("id") == number:
                return dict(answer.get("result", {}))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """One that runs; raises NoBrowserError where none is installed."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise NoBrowserError("no Chromium is installed; on Debian: apt-get install chromium")
    folder.mkdir()
    log = folder / "browser.log"
    where = [f"--user-data-dir={folder / 'profile'}", "--remote-debugging-port=0"]
    with log.open("w") as output:
        command = [program, *OPTIONS, *where, "about:blank"]
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        with connect(_address(log), max_size=None) as connection:
            yield Browser(connection)
    finally:
        process.terminate()
        process.wait(20)


def _address(log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while not (found := LISTENS.search(log.read_text())):
        if time.monotonic() > deadline:
            raise NoBrowserError(f"Chromium does not start; see {log}: {log.read_text()[-500:]}")
        time.sleep(LOOK)
    return found[1]
