"""Processes that we start: they end with us, however we end, or are left behind on purpose."""

from __future__ import annotations

import atexit
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from dataflow_assets.spark.system import HOLDER

# Reads until its input ends, which is when the process holding the other end is gone, however it
# died. A parent-death signal would do as much too early: it follows the thread, not the process.
GUARD = "read _; kill -TERM -$0; sleep 5; kill -KILL -$0"

# Python complains about a child that is forgotten while it runs; a detached one is meant to be.
_detached: dict[int, subprocess.Popen[bytes]] = {}


class Guard:
    """Ends a process, and all of its session, once the process that made the guard is gone."""

    def __init__(self, pid: int) -> None:
        command = ["sh", "-c", GUARD, str(pid)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def end(self) -> None:
        """Whoever ends the process itself needs no guard any more."""
        self._process.kill()
        self._process.communicate()


def detach(command: Sequence[str], lock: Path, **options: Any) -> psutil.Process:
    """Starts a process that outlives us; `options` are those of `subprocess.Popen`.

    It notes in its lock by itself who it is: whoever starts it may be killed at any time.
    """
    process = subprocess.Popen(["sh", "-c", HOLDER, str(lock), *command], **options)
    _detached[process.pid] = process
    return psutil.Process(process.pid)


def let_go(*pids: int) -> None:
    """Reaps detached processes that have ended; Python asks for the others no more."""
    for pid in pids:
        if process := _detached.pop(pid, None):
            process.returncode = process.poll() or 0


atexit.register(lambda: let_go(*_detached))
