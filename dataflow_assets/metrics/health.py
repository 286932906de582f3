"""Readiness and progress of a process that drives flows, as the DataFlow Operator's probes ask.

`/readyz`: a source was reached and asked. `/livez`: that, and there was progress lately: a commit,
or a look that found nothing new. `/healthz`: the process answers.
"""

from __future__ import annotations

import os
import time

TIMEOUT = "PROCESSOR_PROGRESS_TIMEOUT_SECONDS"
TIMEOUT_SECONDS = 600.0


class Health:
    """The progress of one process; its methods may be called by any thread."""

    def __init__(self) -> None:
        self.lane = ""
        """The lane that the process drives; empty where it drives none."""
        self.progressed: float | None = None
        """When there was progress last, in seconds since 1970."""

    def note_progress(self) -> None:
        """A source was asked and has answered, or a sink has committed."""
        self.progressed = time.time()

    def __call__(self, path: str) -> str:
        """Returns `ok` where the answer to a probe is 200, else the reason for a 503."""
        at = self.progressed
        return verdict(path, ready=at is not None, since=time.time() - (at or 0.0))


def verdict(path: str, *, ready: bool, since: float) -> str:
    """Returns `ok`, or why not; `since`: seconds since the last progress."""
    if path != "/healthz" and not ready:
        return "not ready"
    stale = path == "/livez" and since > progress_timeout()
    return "stale: no pipeline progress" if stale else "ok"


def progress_timeout() -> float:
    """Returns the seconds without progress after which a process is stuck."""
    try:
        seconds = float(os.environ.get(TIMEOUT, TIMEOUT_SECONDS))
    except ValueError:
        seconds = 0.0
    return seconds if seconds > 0 else float("inf")
