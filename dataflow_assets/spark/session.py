"""A live Spark session, wherever Spark runs: the same code for a laptop, a server and a cluster.

`connect` (the default) shares one warm Spark Connect server between all runs on this machine: it is
started under a file lock when none runs, it is another one for another interpreter or another set
of locked jars or versions, and it ends by itself when nobody used it for five minutes. Our package
travels with each session, so that edited code never meets warm workers with the old one. Flows
share a session, which is warm; whoever may change one (temporary views, settings) has his own.

Connection settings and secrets never go into Spark's configuration: only closures carry them.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil

from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.spark import connect, errors, jars, java, warm_server
from dataflow_assets.spark.lease import SparkLease
from dataflow_assets.spark.package import package
from dataflow_assets.spark.server import DEFAULTS, FLOW_SETTINGS, spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SILENCES = 2  # of half a minute, then the warm server is ended
# What PySpark leaves behind in the environment of whoever used Spark Connect, for itself and for
# every child: a session of our own would become a client of a server.
_CONNECT_VARIABLES = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE")


@dataclass(frozen=True)
class SparkSettings:
    """Place and settings of Spark (never a connection's)."""

    where: str = "connect"
    """`connect`, `local` (a session of our own), `sc://host:port`, or a master URL."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark settings on top of ours; for `connect` they are session settings.

    The size of Arrow batches is the flows' own.
    """

    @classmethod
    def from_environment(cls) -> SparkSettings:
        return cls(os.environ.get("DATAFLOW_SPARK") or "connect")

    @property
    def mode(self) -> Literal["connect", "remote", "master"]:
        """Which of the three ways `where` means."""
        if self.where == "connect":
            return "connect"
        if self.where.startswith("sc://"):
            return "remote"
        if self.where.startswith(("local", "spark://", "k8s://", "yarn")):
            return "master"
        raise PermanentError(
            f"spark: {self.where!r} is not a place where Spark runs; allowed: connect, local, "
            f"local[N,M], sc://host:port, spark://host:port, k8s://..., yarn"
        )


class Spark:
    """One session at a time, made when it is first asked for and again when it was lost."""

    def __init__(self, settings: SparkSettings, *, own: bool = False) -> None:
        """`own`: a session that nobody else sees, which ends with `close`; else the shared one."""
        self.settings, self._own = settings, own
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._lease: SparkLease | None = None
        self._remote = ""

    def session(self) -> SparkSession:
        """A live session. Raises TransientError when there is none to be had right now."""
        with self._lock:
            if self._session is None or not self._alive(self._session):
                self._drop()
                self._session = self._make()
            return self._session

    def close(self) -> None:
        """Lets go of the session; a shared one stays warm for the next run. Safe twice."""
        with self._lock:
            if self._session is not None and self._own and self.settings.mode != "master":
                self._release(self._session)
            self._drop()
            if self._lease is not None:
                self._lease.close()

    def _make(self) -> SparkSession:
        from pyspark.errors import PySparkException

        try:
            if self.settings.mode == "master":
                return _classic(self.settings, own=self._own)
            if self.settings.mode == "connect":
                return self._warm()
            return self._at(self.settings.where)
        except (PySparkException, OSError, RuntimeError) as error:
            reason = errors.sentence(error)
            raise TransientError(f"no Spark session at {self.settings.where}: {reason}") from error

    def _at(self, remote: str) -> SparkSession:
        self._remote = remote
        conf = self.settings.conf if self._own else {**self.settings.conf, **FLOW_SETTINGS}
        return connect.attach(remote, conf, own=self._own)

    def _warm(self) -> SparkSession:
        """A session of the warm server, which does not end before `close`, unless it is silent.

        One that runs and answers nobody would hold up every run: it is ended for another one.
        """
        if self._lease is not None:
            self._lease.close()
        self._lease = SparkLease(warm_server.folder())
        for _ in range(SILENCES):
            server = warm_server.share()
            with suppress(TimeoutError):
                return self._at(server.remote)
            log.warning("the Spark server at %s does not answer", server.remote)
        warm_server.end_silent(server)
        return self._at(warm_server.share().remote)

    def _release(self, session: Any) -> None:
        """Ends a session of our own on its server, if that is still there."""
        if not connect.answers(self._remote, session):
            connect.forget(session)
            return
        left = None
        if self.settings.mode == "connect":
            try:
                left = workers_parent(session, warm_server.folder())
            except Exception as error:  # noqa: BLE001 - whatever its client raises, the run is done
                log.warning("Python workers may be left on the Spark server: %s", error)
        atexit.unregister(session.client.close)
        session.stop()
        end_workers(left)

    def _alive(self, session: SparkSession) -> bool:
        if self.settings.mode == "master":
            return not _is_stopped(session)
        return connect.answers(self._remote, session)

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None and self.settings.mode == "master":
            session.stop()


def _classic(settings: SparkSettings, *, own: bool) -> SparkSession:
    """The process's session for users' assets, or the one beside it that flows share."""
    from pyspark.sql import SparkSession

    for name in _CONNECT_VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(_environment())
    master = "local[2,4]" if settings.where == "local" else settings.where
    builder: Any = SparkSession.builder  # a class property, which mypy takes for a function
    builder = builder.master(master)
    for key, value in {**_classic_conf(settings.where), **settings.conf}.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.appName("dataflow").getOrCreate()
    if own:
        return session
    flows = session.newSession()
    for key, value in FLOW_SETTINGS.items():
        flows.conf.set(key, value)
    return flows


def _classic_conf(where: str) -> dict[str, str]:
    paths = [str(path) for path in jars.fetch("spark")]
    conf = {key: value for key, value in DEFAULTS.items() if not key.startswith("spark.connect.")}
    conf["spark.driver.extraClassPath"] = ":".join(paths)
    conf["spark.driver.memory"] = "1g"
    if not where.startswith("local"):
        conf["spark.jars"] = ",".join(paths)
        conf["spark.submit.pyFiles"] = str(package())
    return conf


def _environment() -> dict[str, str]:
    return {
        "JAVA_HOME": str(java.home()),
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def _is_stopped(session: SparkSession) -> bool:
    try:
        session.range(0).schema  # noqa: B018 - asks the JVM
    except Exception:  # noqa: BLE001 - whatever py4j raises, this session is gone
        return True
    return False


PARENT = "pyspark.daemon"
# Spark's own name of a session: of the folder of its files, and in its workers' environment.
SESSION = "SPARK_JOB_ARTIFACT_UUID"


def workers_parent(session: SparkSession, folder: Path) -> psutil.Process | None:
    """The parent of the session's workers on the server of a folder; None where it had none."""
    parents = {name: process for process in _children(folder) if (name := _session(process))}
    return parents.get(_name(session)) if parents else None


def end_workers(process: psutil.Process | None) -> None:
    """Ends the parent of a session's workers with them; psutil knows it by more than its number.

    Spark ends the workers after a minute without work, and their parent never: 40 MB for each run
    of a user's asset. Nobody can use it once its session is closed.
    """
    if process is not None:
        with suppress(psutil.NoSuchProcess):
            process.terminate()


def _children(folder: Path) -> list[psutil.Process]:
    server = warm_server.running(folder)
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(server.pid).children() if server else []
    return []


def _session(process: psutil.Process) -> str | None:
    with suppress(psutil.Error):
        if PARENT in process.cmdline():
            return process.environ().get(SESSION)
    return None


def _name(session: SparkSession) -> str:
    """Returns what the server calls a session, without a job, which would wait for those of others.

    The client does not say; the list of files of all sessions does, of a file that we send.
    """
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder) / Path(folder).name
        mark.touch()
        connect.send(session, mark, file=True)
    paths = [Path(row[0]) for row in session.sql("LIST FILES").collect()]
    return next(path.parent.parent.name for path in paths if path.name == mark.name)
