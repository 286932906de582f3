"""The warm Spark Connect server of this environment: started when needed, ended when unused.

There is one for each interpreter, set of jars and locked versions. Whoever uses the server holds a
lease; a watcher of its own ends it when nobody has held one for half an hour.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import subprocess
import sys
import time
from functools import cache
from importlib.metadata import version
from pathlib import Path

from dataflow_assets.spark import detached, jars, system
from dataflow_assets.spark.lease import NAME, Lease
from dataflow_assets.spark.package import PACKAGE
from dataflow_assets.spark.server import DEFAULTS, SparkConnect

log = logging.getLogger(__name__)

IDLE_MINUTES = 30
LOOK_SECONDS = 30
USED = 3  # how `python -m` of this module says that it has ended nothing
# Asks from time to time whether the warm server is still used, once its lease is old. Who ends it
# looks at process identity, so a number that was given to another process meanwhile hurts nobody.
WATCH = (
    '(while kill -0 "$0" 2>/dev/null; do sleep {look}; '
    '[ -n "$(find "$1" -mmin -{minutes})" ] && continue; '
    '"$2" -m dataflow_assets.spark.warm_server "$3" {seconds}; [ $? -eq {used} ] || break; '
    "done) >/dev/null 2>&1 &"
)


def folder() -> Path:
    """Where the warm server of this environment keeps its files."""
    return jars.cache() / "spark" / identity()


def address() -> str:
    """The address of this environment's shared Connect server, started when it does not run."""
    here = folder()
    with Lease(here), (here / "starting").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return (running(here) or _started(here)).remote


def running(here: Path) -> SparkConnect | None:
    """The Connect server of a folder, where one runs."""
    server = SparkConnect(here / "spark", detached=True)
    return server if detached.running(here, {server.name: server}) else None


def stop(here: Path | None = None) -> None:
    """Ends the shared server of this environment, or of a folder, if it runs."""
    here = here or folder()
    server = SparkConnect(here / "spark", detached=True)
    detached.down(here, {server.name: server}, log.info)


def end_unused(here: Path, seconds: float) -> bool:
    """Ends the server of a folder that nobody has used for so long; False where it goes on."""
    lease = here / NAME
    with lease.open("a") as file:
        if not system.locked(file):
            os.utime(file.fileno())  # in use right now
            return False
        if time.time() - lease.stat().st_mtime < seconds:
            return False
        stop(here)
    return True


@cache
def identity() -> str:
    """Of interpreter, Spark, its settings and every locked version: what differs has a server."""
    about = f"{sys.executable} {sys.version} {version('pyspark')} {sorted(DEFAULTS.items())}"
    digest = hashlib.sha256(about.encode())
    for lock in (jars.LOCK, jars.ROOT / "constraints.txt"):
        digest.update(lock.read_bytes() if lock.exists() else b"-")
    return digest.hexdigest()[:12]


def watch(pid: int, here: Path) -> None:
    """Starts what ends the server `pid` of a folder once nobody has used it for half an hour."""
    seconds = 60 * IDLE_MINUTES
    script = WATCH.format(minutes=IDLE_MINUTES, look=LOOK_SECONDS, seconds=seconds, used=USED)
    command = ["sh", "-c", script, str(pid), str(here / NAME), sys.executable, str(here)]
    subprocess.run(command, cwd=PACKAGE.parent, start_new_session=True, check=True)


def _started(here: Path) -> SparkConnect:
    for other in sorted(here.parent.iterdir()):  # an older state of this environment left them
        if other != here and running(other):
            end_unused(other, 0)
    server = SparkConnect(here / "spark", detached=True)
    detached.up(here, {server.name: server}, {server.name}, log.info)
    if server.pid is None:
        raise ConnectionError("the Spark Connect server ended at once")
    watch(server.pid, here)
    return server


if __name__ == "__main__":
    sys.exit(0 if end_unused(Path(sys.argv[1]), float(sys.argv[2])) else USED)
