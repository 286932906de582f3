"""A fleet that runs: messages come in, a drive works, tables and processes are watched."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.fleet import figures
from bench.fleet.drives import DRIVES
from bench.fleet.ground import Ground
from bench.fleet.manifests import Member
from bench.fleet.messages import Sender
from bench.fleet.watch import Tables, Watch, tables
from dataflow_assets.spark.process import Server, ServerError

SETTLE = 60.0
START = 300.0
CATCH_UP = 180.0  # seconds that the last messages may take to their tables


@dataclass(frozen=True)
class Order:
    """What was asked for."""

    flows: int
    minutes: float
    drive: str
    waiting: int
    """Messages of the backlog."""

    @property
    def seconds(self) -> float:
        """How long a case is watched."""
        return 60 * self.minutes


@dataclass(frozen=True)
class Fleet:
    """Flows at work."""

    ground: Ground
    drive: Server
    tables: Tables
    watch: Watch

    def wait(self, seconds: float) -> None:
        """Raises ServerError when the drive has ended by itself."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.drive.running:
                raise ServerError(f"{self.drive.name} has ended by itself; see {self.drive.log}")
            time.sleep(0.5)

    def settle(self) -> float:
        """Waits for the first row of every flow, and a minute more; seconds until the first rows.

        After five minutes without one it goes on all the same: the looks at ages tell.
        """
        began = time.monotonic()
        while self.tables.unserved() and time.monotonic() < began + START:
            self.wait(1)
        served = time.monotonic() - began
        self.wait(SETTLE)
        return served

    def finish(self, sent: Mapping[str, int], unfinished: Collection[str] = ()) -> dict[str, Any]:
        """Waits for the last rows, ends the drive, and counts.

        The flows of `unfinished` need not have all.
        """
        wanted = {name: count for name, count in sent.items() if name not in unfinished}
        deadline = time.monotonic() + CATCH_UP
        while self._missing(wanted) and time.monotonic() < deadline:
            self.wait(1)
        self.drive.stop()
        return figures.kept(sent, self.ground.held(sent), unfinished)

    def _missing(self, wanted: Mapping[str, int]) -> bool:
        consumed = self.tables.consumed()
        return any(consumed.get(name, 0) < count for name, count in wanted.items())


@contextmanager
def running(order: Order, ground: Ground, flows: Sequence[Member], folder: Path) -> Iterator[Fleet]:
    """Starts the drive on a folder of manifests; the tables of `flows` are looked at."""
    with tables(ground, flows) as seen, DRIVES[order.drive](ground.folder, folder) as drive:
        apart = [seen.connection.info.backend_pid]
        yield Fleet(ground, drive, seen, Watch(ground.mark, seen.ages, apart))


def sender(ground: Ground, flows: Sequence[Member], times: int | None = None) -> Sender:
    """One message a second for each of the flows."""
    topics = [flow.name for flow in flows]
    return Sender(
        ground.folder / "sender", bootstrap=ground.kafka.bootstrap, topics=topics, times=times
    )
