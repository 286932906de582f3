"""A driver that runs in a process of its own, watched from outside: what it does just now."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.e2e.flows import Command

BEGUN = "drain.begun"
NEVER = 1_000_000_000
"""A failpoint that is reached so often: it never acts, and its file counts the micro-batches."""
FOR = "7200"
PATIENCE = "600"  # seconds: on a busy machine a server takes minutes to come back


class Driver:
    """`dataflow run --for`, whose reports are read as it prints them.

    Its process is forked from one that has imported everything: on a busy machine imports alone
    would take most of the time between two kills.
    """

    def __init__(self, command: Command, manifest: Path, dies_at: str = "", *more: str) -> None:
        """`dies_at`: the name of a step at which it is killed, with the task that comes there.

        `more`: arguments of the command beside those of all drivers.
        """
        token, name = uuid.uuid4().hex, dies_at or BEGUN
        self._counter = Path(tempfile.gettempdir(), f"dataflow-failpoint-{name}-{token}")
        action = f"{dies_at}:kill" if dies_at else f"{BEGUN}:file:{NEVER}"
        armed = {"DATAFLOW_FAILPOINT": action, "DATAFLOW_FAILPOINT_TOKEN": token}
        armed["DATAFLOW_PATIENCE"] = PATIENCE
        self.process = command.start("run", str(manifest), "--for", FOR, "--json", *more, **armed)
        self.positions: dict[str, int] = {}
        self.reports = 0
        self.committed_at: list[float] = []
        """When reports of stored rows came, by the monotonic clock."""
        self.rejected = 0
        self._begun_at_report = 0
        self._said: deque[str] = deque(maxlen=200)
        self._typical = 0.5
        self._threads = [
            self._reading(self.process.lines(errors=False), self._reported),
            self._reading(self.process.lines(errors=True), self._said.append),
        ]

    @staticmethod
    def _reading(lines: Iterator[str], take: Callable[[str], None]) -> threading.Thread:
        def read() -> None:
            for line in lines:
                take(line)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    @property
    def begun(self) -> int:
        """Micro-batches that were begun."""
        try:
            return self._counter.stat().st_size
        except FileNotFoundError:
            return 0

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def killed(self) -> bool:
        """By a signal, rather than ended by itself."""
        return (self.process.poll() or 0) < 0

    @property
    def busy(self) -> bool:
        """It is between the begin of a micro-batch and its report."""
        return self.alive and self.begun > self._begun_at_report

    @property
    def said(self) -> str:
        """The end of what it printed for a person."""
        return "".join(self._said)

    def stored(self, ends: Mapping[str, int]) -> bool:
        """Whether all up to these positions is committed."""
        return all(self.positions.get(partition, 0) >= end for partition, end in ends.items())

    def meet(self, chance: random.Random, seconds: float = 120) -> bool:
        """Waits for some micro-batch and some moment of it; whether the driver is in the middle."""
        wanted = self.begun + chance.choice((1, 1, 2))
        deadline = time.monotonic() + seconds
        while self.begun < wanted and self.alive and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(chance.uniform(0.0, self._typical))
        return self.busy

    def until(self, there: Callable[[], bool], seconds: float) -> bool:
        """Waits until something is so; False when the time is up or the driver has ended."""
        deadline = time.monotonic() + seconds
        while not there():
            if not self.alive or time.monotonic() > deadline:
                return there()
            time.sleep(0.01)
        return True

    def kill(self) -> None:
        """Ends it as `kill -9` does. It is gone on return: that may take a moment."""
        self.process.kill()
        self.process.wait()

    def stacks(self) -> str:
        """Ends the driver; what it printed, and where its threads were."""
        self.process.send_signal(signal.SIGABRT)
        return self.ended()

    def ended(self, seconds: float = 60) -> str:
        """What it printed for a person, once it has ended."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"a driver did not end: {self.said}") from None
        for thread in self._threads:
            thread.join(5)
        self._counter.unlink(missing_ok=True)
        self.process.communicate()  # what it printed goes
        return self.said

    def _reported(self, line: str) -> None:
        try:
            report: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError:
            return  # cut off by a kill
        if "outcome" in report:
            self._said.append(f"{report['outcome']}: {report['error']}\n")
        elif not report["last"]:
            self._committed(report)

    def _committed(self, report: Mapping[str, Any]) -> None:
        self._begun_at_report = self.begun
        self.positions |= report["positions"]
        self.rejected = report["total_rejected"]
        self.reports += 1
        self.committed_at.append(time.monotonic())
        self._typical = min(3.0, 0.7 * self._typical + 0.3 * min(report["seconds"], 3.0))
