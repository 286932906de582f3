"""A driver of a flow: a process, known by host, boot, namespace, number and start time.

Written into the tags of a run, so that a later look tells a run that died from one that works.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


@dataclass(frozen=True)
class FlowDriver:
    """One process. `started` (clock ticks after boot) tells it from a later one of its number.

    `namespace` tells whose numbers they are: containers that share the host's network also share
    its name, but count their processes themselves.
    """

    host: str
    boot: str
    pid: int
    started: int
    namespace: str = "unknown"

    @classmethod
    def here(cls) -> FlowDriver:
        pid = os.getpid()
        return cls(socket.gethostname(), _boot(), pid, _start_time(pid) or 0, _namespace())

    @classmethod
    def parse(cls, text: str) -> FlowDriver | None:
        """Returns what `str` wrote; None for anything else."""
        parts = text.split()
        if len(parts) != 5 or not (parts[2].isdigit() and parts[3].isdigit()):
            return None
        return cls(parts[0], parts[1], int(parts[2]), int(parts[3]), parts[4])

    def __str__(self) -> str:
        return f"{self.host} {self.boot} {self.pid} {self.started} {self.namespace}"

    @property
    def alive(self) -> bool | None:
        """Returns whether the process runs; None where that cannot be seen from here.

        It cannot on another host, in another container, and on systems without /proc.
        """
        if self.host != socket.gethostname() or not self.started:
            return None
        if self.boot != _boot():
            return False  # the host was started again since
        return _start_time(self.pid) == self.started if self.namespace == _namespace() else None


def _boot() -> str:
    return _BOOT.read_text().strip() if _BOOT.exists() else "unknown"


def _namespace() -> str:
    return str(_NAMESPACE.readlink()) if _NAMESPACE.is_symlink() else "unknown"


def _start_time(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else int(fields[19])
