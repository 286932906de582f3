"""Who uses the warm Spark server: it may end when nobody does, and never under running work.

Everybody who may use the server holds a shared lock on one file. The kernel takes the lock back
when a process ends, however that happens. Only who gets the lock alone ends the server, and who
comes meanwhile waits for that and starts another one.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

NAME = "lease"
USED = 3  # how the process below says that it has ended nothing


class Lease:
    """Keeps the server of a folder alive until it is closed; its time of change is the last use."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / NAME).open("a")
        fcntl.flock(self._file, fcntl.LOCK_SH)
        os.utime(self._file.fileno())

    def close(self) -> None:
        """Ends the use; safe twice."""
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


def end_unused(folder: Path, seconds: float) -> bool:
    """Ends the server of a folder that nobody has used for so long; False where it goes on."""
    import devservers
    from devservers import system

    lease = folder / NAME
    with lease.open("a") as file:
        if not system.locked(file):
            os.utime(file.fileno())  # in use right now
            return False
        if time.time() - lease.stat().st_mtime < seconds:
            return False
        devservers.down(folder, progress=lambda _: None)
    return True


if __name__ == "__main__":
    sys.exit(0 if end_unused(Path(sys.argv[1]), float(sys.argv[2])) else USED)
