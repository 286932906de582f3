"""A step at which a test holds the flows of a process: whoever is held is met by a strike."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path


class Gate:
    """A named step of every flow of one process, and of its tasks. Open until it is shut."""

    def __init__(self, step: str) -> None:
        token = uuid.uuid4().hex
        folder = Path(tempfile.gettempdir())
        self.step = step
        self._counter = folder / f"dataflow-failpoint-{step}-{token}"
        self._file = folder / f"dataflow-gate-{token}"
        self._held = folder / f"{self._file.name}-held"
        self.environment = {
            "DATAFLOW_FAILPOINT": f"{step}:file:1+",
            "DATAFLOW_FAILPOINT_FILE": str(self._file),
            "DATAFLOW_FAILPOINT_TOKEN": token,
        }
        """Of the process."""

    def shut(self) -> None:
        """Whoever reaches the step from now on is held."""
        self._held.unlink(missing_ok=True)
        self._file.touch()

    @property
    def held(self) -> int:
        """How many are held: flows, or tasks."""
        return self._held.stat().st_size if self._file.exists() and self._held.exists() else 0

    def open(self) -> None:
        """Lets all of them go on."""
        self._file.unlink(missing_ok=True)

    def remove(self) -> None:
        self.open()
        for file in (self._held, self._counter):
            file.unlink(missing_ok=True)
