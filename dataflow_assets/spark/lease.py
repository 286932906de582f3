"""Leases on the warm Spark server: it may end when nobody does, and never under running work.

Everybody who may use the server holds a shared lock on one file. The kernel takes the lock back
when a process ends, however that happens. Only who gets the lock alone ends the server, and who
comes meanwhile waits for that and starts another one.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

NAME = "lease"


class SparkLease:
    """Keeps the server of a folder alive until it is closed; its time of change is the last use."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / NAME).open("a")
        fcntl.flock(self._file, fcntl.LOCK_SH)
        os.utime(self._file.fileno())

    def close(self) -> None:
        if not self._file.closed:
            os.utime(self._file.fileno())
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
