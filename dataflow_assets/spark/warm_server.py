"""The warm Spark Connect server of this environment: started when needed, ended when unused.

There is one for each interpreter, set of jars and locked versions. Whoever uses the server holds a
lease; a watcher of its own ends it when nobody has held one for five minutes.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dataflow_assets.spark import detached, jars, system
from dataflow_assets.spark.lease import NAME, SparkLease
from dataflow_assets.spark.package import PACKAGE
from dataflow_assets.spark.server import DEFAULTS, SparkConnect

log = logging.getLogger(__name__)

IDLE_MINUTES = 5  # a start takes some ten seconds; a JVM that waits holds half a gigabyte
LOOK_SECONDS = 30
USED = 3  # how `python -m` of this module says that it has ended nothing
# Asks from time to time whether the warm server is still used, once its lease is old, until that is
# gone: a look may fail, as in an environment that is just being rebuilt. The lock says who it is.
WATCH = (
    '(while [ -d "$0" ]; do sleep {look}; '
    'read -r pid _ <"$0/spark/.lock" && ! kill -0 "$pid" && break; '
    '[ -n "$(find "$0/{lease}" -mmin -{minutes})" ] && continue; '
    '"$1" -m dataflow_assets.spark.warm_server "$0" {seconds} && break; '
    "done) >/dev/null 2>&1 &"
)


def folder() -> Path:
    """Returns where the warm server of this environment keeps its files."""
    return jars.cache() / "spark" / identity()


def share() -> SparkConnect:
    """This environment's shared Connect server, started when it does not run."""
    here = folder()
    with SparkLease(here), _starting(here):
        server = running(here)
        if server is None:
            log.warning(
                "starting Spark: half a minute on an idle machine; runs of the next %d minutes "
                "find it there",
                IDLE_MINUTES,
            )
            for other in sorted(
                here.parent.iterdir()
            ):  # an older state of this environment left them
                if other != here and running(other):
                    end_unused(other, 0)
            watch(here)  # before the start, in which we may be killed
            server = detached.up(here, _servers(here), {SparkConnect.name}, log.info)[
                SparkConnect.name
            ]
        watch(here)  # the one from before the start may have just ended the server's predecessor
        return server


def end_silent(server: SparkConnect) -> None:
    """Ends the shared server that answers nobody, unless somebody else has done so."""
    here = folder()
    with _starting(here):
        if server.running:  # this very process, not its successor on the same port
            stop(here)


def running(here: Path) -> SparkConnect | None:
    return detached.running(here, _servers(here)).get(SparkConnect.name)


def stop(here: Path | None = None) -> None:
    """Ends the shared server of this environment, or of a folder, if it runs."""
    here = here or folder()
    detached.down(here, _servers(here), log.info)


def end_unused(here: Path, seconds: float) -> bool:
    """Ends the server of a folder that nobody has used for so long; False where it goes on."""
    lease = here / NAME
    with lease.open("a") as file:
        if not system.take_lock(file):
            os.utime(file.fileno())  # in use right now
            return False
        if time.time() - lease.stat().st_mtime < seconds:
            return False
        stop(here)
    return True


@cache
def identity() -> str:
    """A digest of interpreter, Spark, its settings and all locked versions: one server for each."""
    about = f"{sys.executable} {sys.version} {version('pyspark')} {sorted(DEFAULTS.items())}"
    digest = hashlib.sha256(about.encode())
    with suppress(PackageNotFoundError):  # its workers import this package
        digest.update(version("dataflow-assets").encode())
    for lock in (jars.LOCK, jars.ROOT / "constraints.txt"):
        digest.update(lock.read_bytes() if lock.exists() else b"-")
    return digest.hexdigest()[:12]


def watch(here: Path) -> None:
    """Starts what ends the server of a folder once nobody has used it for five minutes.

    Without effect where there is such a watch: it holds a lock as long as it lives.
    """
    times = {"look": LOOK_SECONDS, "minutes": IDLE_MINUTES, "seconds": 60 * IDLE_MINUTES}
    with (here / "watch").open("a") as lock:
        if system.take_lock(lock):
            command = ["sh", "-c", WATCH.format(lease=NAME, **times), str(here), sys.executable]
            subprocess.run(
                command,
                cwd=PACKAGE.parent,
                pass_fds=[lock.fileno()],
                start_new_session=True,
                check=True,
            )


def _servers(here: Path) -> dict[str, SparkConnect]:
    return {SparkConnect.name: SparkConnect(here / "spark", detached=True)}


@contextmanager
def _starting(here: Path) -> Iterator[None]:
    """One at a time starts the server of a folder, or ends it because it is silent."""
    with (here / "starting").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(0 if end_unused(Path(sys.argv[1]), float(sys.argv[2])) else USED)
