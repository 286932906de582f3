"""A step at which a test holds the flows of a process: whoever is held is met by a strike."""

from __future__ import annotations

import tempfile
import time
import uuid
from pathlib import Path


class Gate:
    """A named step of every flow of one process, and of its tasks. Open until it is shut."""

    def __init__(self, step: str) -> None:
        token = uuid.uuid4().hex
        self.step = step
        self._counter = Path(tempfile.gettempdir(), f"dataflow-failpoint-{step}-{token}")
        self._file = self._counter.with_name(f"dataflow-gate-{token}")
        self._passed = 0
        self.environment = {
            "DATAFLOW_FAILPOINT": f"{step}:file:1+",
            "DATAFLOW_FAILPOINT_FILE": str(self._file),
            "DATAFLOW_FAILPOINT_TOKEN": token,
        }
        """Of the process."""

    def shut(self) -> None:
        """Whoever reaches the step from now on is held."""
        while True:
            before = self._reached
            self._file.touch()
            self._passed = self._reached
            if self._passed == before:
                return
            self.open()  # somebody was at the step just now: held or not, nobody knows
            time.sleep(0.2)

    @property
    def held(self) -> int:
        """How many are held: flows, or tasks."""
        return self._reached - self._passed if self._file.exists() else 0

    def open(self) -> None:
        """Lets all of them go on."""
        self._file.unlink(missing_ok=True)

    def remove(self) -> None:
        self.open()
        self._counter.unlink(missing_ok=True)

    @property
    def _reached(self) -> int:
        try:
            return self._counter.stat().st_size
        except FileNotFoundError:
            return 0
