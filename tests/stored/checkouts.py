"""Scripts of this folder with the version of another checkout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

HERE = Path(__file__).parent
CHECKOUT = "DATAFLOW_STORED_CHECKOUT"
"""The variable with the folder of the checkout."""


def ended(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What the script wrote to its standard error, and the code it ended with."""
    checkout = os.environ[CHECKOUT]
    return subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        cwd=checkout,
        env={**os.environ, **environment, "PYTHONPATH": checkout},
        check=False,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(what: str, file: Path, failpoint: str = "") -> None:
    """Drains or replays, until it ends or, where a failpoint is named, is killed there."""
    armed = {"DATAFLOW_FAILPOINT": failpoint, "DATAFLOW_FAILPOINT_TOKEN": uuid.uuid4().hex}
    done = ended("running.py", what, str(file), **armed)
    wanted = -signal.SIGKILL if failpoint else 0
    assert done.returncode == wanted, f"{what} {failpoint}: {done.stderr[-1000:]}"
