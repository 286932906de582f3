"""A process in place of a server, where what starts, finds and ends servers is tested.

`python -m tests.stand_in FOLDER SECONDS` leaves one behind, which listens after so many seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from dataflow_assets.spark import detached
from dataflow_assets.spark.process import LOOPBACK, Server

LISTENS = """
import socket, sys, time
time.sleep(float(sys.argv[2]))
socket = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(600)
"""


def listens(port: int, after: float = 0) -> list[str]:
    """The command of a process that takes connections in and answers nothing."""
    return [sys.executable, "-c", LISTENS, str(port), str(after)]


@dataclass(eq=False, kw_only=True)
class StandIn(Server):
    """A server that is nothing but a process and its port."""

    name = "stand-in"
    port_names = ("port",)

    after: float = 0

    @override
    def command(self) -> list[str]:
        return listens(self.ports["port"], self.after)

    @override
    def ready(self) -> bool:
        return True

    @override
    def endpoints(self) -> dict[str, str]:
        return {"port": f"{LOOPBACK}:{self.ports['port']}"}


def known(folder: Path, after: float = 0) -> dict[str, StandIn]:
    """The one server of a folder."""
    return {StandIn.name: StandIn(folder / StandIn.name, detached=True, after=after)}


def until(true: Callable[[], object], seconds: float = 60) -> None:
    """Waits until something is true, or fails."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


if __name__ == "__main__":
    here = Path(sys.argv[1])
    detached.up(here, known(here, float(sys.argv[2])), {StandIn.name}, lambda _: None)
