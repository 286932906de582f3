"""A live Spark session, wherever Spark runs: the same code for a laptop, a server and a cluster.

`connect` (the default) shares one warm Spark Connect server between all runs on this machine: it is
started under a file lock when none runs, it is another one for another interpreter or another set
of locked jars or versions, and it ends by itself when nobody used it for half an hour. Our package
travels with each session, so that edited code never meets warm workers with the old one. Flows
share a session, which is warm; whoever may change one (temporary views, settings) has his own.

Connection settings and secrets never go into Spark's configuration: only closures carry them.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.spark import errors, jars, java, warm_server, workers
from dataflow_assets.spark.lease import Lease
from dataflow_assets.spark.package import package, shipped_by_value
from dataflow_assets.spark.server import DEFAULTS, spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
# Spark Connect's client tries for ten minutes; the loop has a patience of its own.
RPC_RETRIES = 4
GENERATIONS = 50
# What PySpark leaves behind in the environment of whoever used Spark Connect, for itself and for
# every child: a session of our own would become a client of a server.
_CONNECT_VARIABLES = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE")


@dataclass(frozen=True)
class SparkSettings:
    """Where Spark runs, and its own settings (never a connection's)."""

    where: str = "connect"
    """`connect`, `local` (a session of our own), `sc://host:port`, or a master URL."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark settings on top of ours; for `connect` they are session settings."""

    @classmethod
    def from_environment(cls) -> SparkSettings:
        """`DATAFLOW_SPARK`, else the warm server."""
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
        self._lease: Lease | None = None
        self._remote, self._since = "", 0.0

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

        mode = self.settings.mode
        try:
            if mode == "master":
                return _classic(self.settings)
            self._remote = self.settings.where if mode == "remote" else self._warm()
            self._since = time.time()
            return _attach(self._remote, self.settings.conf, own=self._own)
        except (PySparkException, OSError, RuntimeError) as error:
            reason = errors.sentence(error)
            raise TransientError(f"no Spark session at {self.settings.where}: {reason}") from error

    def _release(self, session: Any) -> None:
        """Ends a session of our own on its server, if that is still there."""
        atexit.unregister(session.client.close)
        if not _listens(self._remote):
            session.client.close()
            return
        left = None
        if self.settings.mode == "connect":
            with suppress(Exception):  # whatever its client raises, nothing is left to be ended
                left = workers.parent(session, warm_server.folder(), self._since)
        session.stop()
        workers.end(left)

    def _warm(self) -> str:
        """The warm server's address; it does not end before `close`."""
        if self._lease is not None:
            self._lease.close()
        self._lease = Lease(warm_server.folder())
        return warm_server.address()

    def _alive(self, session: SparkSession) -> bool:
        """Asks the server; a refused connection is known at once, without the client's retries."""
        if self.settings.mode == "master":
            return not _stopped(session)
        if not _listens(self._remote):
            return False
        try:
            return _ping(session)
        except Exception:  # noqa: BLE001 - whatever its client raises, this session is gone
            log.warning("the Spark session is lost; making another one")
            return False

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None and self.settings.mode == "master":
            session.stop()


def _attach(remote: str, conf: Mapping[str, str], *, own: bool) -> SparkSession:
    """The server's session for our code as it is and these settings, or one of our own.

    Flows share it: the server keeps Python workers by session, so that one for each run would cost
    every run a cold start of them. A closed id cannot be used again, hence the generations; where
    all of them are closed, every run has a cold start.
    """
    from pyspark import cloudpickle
    from pyspark.errors import PySparkException

    if not _listens(remote):
        raise ConnectionError(f"nothing listens at {remote}")
    for module in shipped_by_value():
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    for generation in () if own else range(GENERATIONS):
        try:
            return _join(f"{remote}/;session_id={_session_id(conf, generation)}", conf)
        except PySparkException as error:
            if "SESSION_CLOSED" not in str(error):
                raise
    return _join(f"{remote}/;session_id={uuid.uuid4()}", conf)


def _session_id(conf: Mapping[str, str], generation: int) -> uuid.UUID:
    shared = f"{package().parent.name} {sorted(conf.items())} {generation}"
    return uuid.uuid5(uuid.NAMESPACE_OID, shared)


def _join(remote: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession, functions

    builder: Any = SparkSession.builder  # a class property, which mypy takes for a function
    session: Any = builder.remote(remote).create()
    _quiet(session)
    for policy in session.client.get_retry_policies():
        policy.max_retries = RPC_RETRIES
    for key, value in conf.items():
        session.conf.set(key, value)
    _ping(session)
    # The first column of a process asks the session that was made first for a setting, and keeps
    # the answer: later that session may be closed, or its server gone.
    functions.col("id")
    _send_package(session)
    attached: SparkSession = session
    return attached


def _quiet(session: Any) -> None:
    """Nothing is asked at the process's end, and a warning does not repeat what an error says.

    Its client would ask the server once more at exit, with all its retries where that is gone; one
    that was closed before does not. What is registered later runs earlier.
    """
    atexit.register(session.client.close)
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]", category=UserWarning)


def _send_package(session: SparkSession) -> None:
    """Our code, which names the session: what is there already is the same."""
    from pyspark.errors import PySparkException

    try:
        session.addArtifacts(str(package()), pyfile=True)
    except PySparkException as error:
        if "ARTIFACT_ALREADY_EXISTS" not in str(error):  # another run has just sent it
            raise


def _ping(session: SparkSession) -> bool:
    """Asks for anything: from the first answer on, the client knows its server from another one."""
    return bool(session.conf.get("spark.sql.session.timeZone"))


def _classic(settings: SparkSettings) -> SparkSession:
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
    return session


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


def _listens(remote: str) -> bool:
    address = urlsplit(remote)
    try:
        target = (address.hostname or "", address.port or 15002)
        socket.create_connection(target, CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def _stopped(session: SparkSession) -> bool:
    try:
        session.range(0).schema  # noqa: B018 - asks the JVM
    except Exception:  # noqa: BLE001 - whatever py4j raises, this session is gone
        return True
    return False
