"""Status of a connector and its tasks: one file beside the parts, which everybody may look at.

Nothing rests on it: it is neither synchronized to the disk nor read by the process that writes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.repeating import repeat

Name = Literal["RUNNING", "PAUSED", "FAILED", "STOPPED", "UNASSIGNED"]
"""As Kafka Connect calls them. PAUSED: a task is not polled, since the spool is full. UNASSIGNED:
no process runs the connector, and none has stopped it."""
_FILE = "connector.json"
WRITTEN = 2.0  # seconds until states are written again that have not changed
_SILENT = 30.0  # seconds


class ConnectStates(msgspec.Struct, frozen=True):
    """States of one process, at one moment."""

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
        unfinished.write_bytes(msgspec.json.encode(ConnectStates(connector, tasks, time.time())))
        unfinished.rename(folder / _FILE)


def note_states(folder: Path, tasks: Callable[[], list[Name]]) -> AbstractContextManager[None]:
    """Writes the states of a connector that runs until the block ends.

    Called by the host around calls into the connector, which may take minutes: a living connector
    must not seem to be gone. `tasks`: asked each time, at first here, then by a thread.
    """
    return repeat(lambda: write(folder, "RUNNING", tasks()), WRITTEN, "states")


def read(folder: Path) -> Mapping[str, str]:
    """The states by their names; empty where no process has written any.

    Called by whoever looks how far a flow is, on any machine that sees the folder.
    """
    try:
        states = decode_json((folder / _FILE).read_bytes(), ConnectStates)
    except (OSError, msgspec.MsgspecError):
        return {}
    if time.time() - states.at <= _SILENT:
        return dict(states.lines())
    if states.connector == "RUNNING":
        return dict.fromkeys(dict(states.lines()), "UNASSIGNED")
    return dict(states.lines()) | {"connector": _long_ago(states)}


def _long_ago(found: ConnectStates) -> str:
    if found.connector != "FAILED":
        return found.connector
    return f"FAILED at {datetime.fromtimestamp(found.at, UTC):%Y-%m-%d %H:%M} UTC"
