"""Programs that prepare a server, and end by themselves: formatting, initdb."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from dataflow_assets.spark.process import ServerError


def run(command: Sequence[str], what: str) -> None:
    """Runs one to its end; `what` says what it does. Raises ServerError with what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerError(f"{what} failed ({done.returncode}): {done.stdout}{done.stderr}".strip())
