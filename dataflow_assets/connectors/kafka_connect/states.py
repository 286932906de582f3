"""How a connector and its tasks fare: one file beside the parts, which everybody may look at.

Nothing rests on it: it is neither synchronized to the disk nor read by the process that writes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

Name = Literal["RUNNING", "PAUSED", "FAILED", "STOPPED", "UNASSIGNED"]
"""As Kafka Connect calls them. PAUSED: a task is not polled, since the spool is full. UNASSIGNED:
no process runs the connector, and none has stopped it."""
_FILE = "connector.json"
_SILENT = 30.0  # seconds; the process writes every two


class States(msgspec.Struct, frozen=True):
    """Those of one process, at one moment."""

    connector: Name
    tasks: list[Name] = []
    at: float = 0.0
    """When they were written, in seconds since 1970."""

    def lines(self) -> Iterator[tuple[str, str]]:
        """(name, state) of the connector, then of each task."""
        yield "connector", self.connector
        for number, state in enumerate(self.tasks):
            yield f"task {number}", state


def write(folder: Path, connector: Name, tasks: list[Name]) -> None:
    """Called by the host every two seconds, and when a state changes. A full disk is no error."""
    unfinished = folder / f".{_FILE}"
    with suppress(OSError):
        unfinished.write_bytes(msgspec.json.encode(States(connector, tasks, time.time())))
        unfinished.rename(folder / _FILE)


def read(folder: Path) -> Mapping[str, str]:
    """The states by their names; empty where no process has written any.

    Called by whoever looks how far a flow is, on any machine that sees the folder.
    """
    try:
        found = msgspec.json.decode((folder / _FILE).read_bytes(), type=States)
    except (OSError, msgspec.MsgspecError):
        return {}
    silent = time.time() - found.at > _SILENT
    gone = silent and found.connector == "RUNNING"
    return {name: "UNASSIGNED" if gone else state for name, state in found.lines()}
