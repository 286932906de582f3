"""Named places where a crash test may stop the process: `DATAFLOW_FAILPOINT=name:action[:nth[+]]`.

Actions: `kill` (SIGKILL to this process and to the driver of the run), `kill-driver` (to the driver
alone), `kill-task` (to this process alone), `raise` (an error as if the outside had failed),
`sleep` (30 s, for a racing driver), `file` (wait until the file named by DATAFLOW_FAILPOINT_FILE is
gone; each that waits adds a byte to the file with `-held` behind that name). They are taken the nth
time that the step is reached, with `+` behind it also each time after that. Without the variable a
failpoint costs one comparison.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from dataflow_assets.errors import TransientError


@dataclass(frozen=True)
class Failpoint:
    """An action at a place of the code; travels with the ticket from the driver to the tasks."""

    name: str
    action: str
    nth: int
    driver: int
    file: str
    token: str
    """Tells one use from the next; all processes of a run count together in a file named by it."""
    onwards: bool = False
    """Also each time after the nth."""


_armed: Failpoint | None = None
_VICTIMS = ("kill", "kill-driver", "kill-task")


def from_environment() -> Failpoint | None:
    """The failpoint that this process was started with."""
    text = os.environ.get("DATAFLOW_FAILPOINT")
    if not text:
        return None
    name, action, nth = [*text.split(":"), "1"][:3]
    file = os.environ.get("DATAFLOW_FAILPOINT_FILE", "")
    token = os.environ.get("DATAFLOW_FAILPOINT_TOKEN", str(os.getpid()))
    onwards = nth.endswith("+")
    return Failpoint(name, action, int(nth.rstrip("+")), os.getpid(), file, token, onwards)


def arm(failpoint: Failpoint | None) -> None:
    """Sets what `reach` looks for in this process (a Spark worker serves many runs)."""
    global _armed  # noqa: PLW0603 - one process, one run at a time
    _armed = failpoint


def reach(name: str) -> None:
    """Marks a named step; acts when that step is armed and was reached often enough."""
    armed = _armed  # a second driver in this process may disarm it meanwhile
    if armed is None or armed.name != name:
        return
    times = _times_reached(armed)
    if times == armed.nth or (armed.onwards and times > armed.nth):
        if armed.action in _VICTIMS:
            _kill(armed)
        elif armed.action == "raise":
            raise TransientError(f"failpoint {armed.name}")
        elif armed.action == "sleep":
            time.sleep(30)
        else:
            file = Path(armed.file)
            if file.exists():
                with file.with_name(f"{file.name}-held").open("ab") as held:
                    held.write(b".")
            while file.exists():
                time.sleep(0.05)


def _times_reached(failpoint: Failpoint) -> int:
    path = Path(tempfile.gettempdir(), f"dataflow-failpoint-{failpoint.name}-{failpoint.token}")
    with path.open("ab") as counter:
        counter.write(b".")
        return counter.tell()


def _kill(failpoint: Failpoint) -> None:
    if failpoint.action != "kill-task":
        os.kill(failpoint.driver, signal.SIGKILL)
    if failpoint.action != "kill-driver":
        os.kill(os.getpid(), signal.SIGKILL)
