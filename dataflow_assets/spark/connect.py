"""Sessions of a Spark Connect server: joined, asked within a deadline, forgotten.

Its client has no deadline: a server that is stopped, or out of memory and collecting garbage, would
keep it waiting for ever.
"""

from __future__ import annotations

import atexit
import logging
import socket
import threading
import uuid
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from dataflow_assets.spark.package import package, shipped_by_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
JOIN_SECONDS = 30.0  # the first session of a server loads most of its classes, on a busy machine
# Spark Connect's client tries for ten minutes; the loop has a patience of its own.
RPC_RETRIES = 4
GENERATIONS = 50
# Who sends an artifact empties Python's caches of imports, which fails in two threads at once.
_sending = threading.Lock()


def attach(remote: str, conf: Mapping[str, str], *, own: bool) -> SparkSession:
    """The server's session for our code as it is and these settings, or one of our own.

    Raises TimeoutError at a server that is silent.

    Flows share it: the server keeps Python workers by session, so that one for each run would cost
    every run a cold start of them. A closed id cannot be used again, hence the generations; where
    all of them are closed, every run has a cold start.
    """
    from pyspark import cloudpickle
    from pyspark.errors import PySparkException

    _reach(remote)
    for module in shipped_by_value():
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    for generation in () if own else range(GENERATIONS):
        try:
            return _join(f"{remote}/;session_id={_session_id(conf, generation)}", conf)
        except PySparkException as error:
            if "SESSION_CLOSED" not in str(error):
                raise
    return _join(f"{remote}/;session_id={uuid.uuid4()}", conf)


def answers(remote: str, session: SparkSession) -> bool:
    """Asks the session's server; a refused connection is known at once, without retries."""
    try:
        _reach(remote)
        return _ask(session, ANSWER_SECONDS, partial(_ping, session))
    except ConnectionError:
        return False
    except Exception:  # noqa: BLE001 - whatever its client raises, this session is gone
        log.warning("the Spark session is lost")
        return False


def send(session: SparkSession, path: Path, **kind: bool) -> None:
    """Sends a file to the session's folder on its server, as `addArtifacts` has its kinds."""
    with _sending:
        session.addArtifacts(str(path), **kind)


def forget(session: Any) -> None:
    """Ends the client, with what it is asking; a server that is silent may keep it waiting."""
    atexit.unregister(session.client.close)
    threading.Thread(target=session.client.close, daemon=True).start()


def _reach(remote: str) -> None:
    """Raises ConnectionError where there is no server, TimeoutError where it takes nobody in."""
    address = urlsplit(remote)
    target = (address.hostname or "", address.port or 15002)
    try:
        socket.create_connection(target, CONNECT_SECONDS).close()
    except TimeoutError:
        raise
    except OSError as error:
        raise ConnectionError(f"nothing listens at {remote}") from error


def _session_id(conf: Mapping[str, str], generation: int) -> uuid.UUID:
    shared = f"{package().parent.name} {sorted(conf.items())} {generation}"
    return uuid.uuid5(uuid.NAMESPACE_OID, shared)


def _join(remote: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession, functions

    builder: Any = SparkSession.builder  # a class property, which mypy takes for a function
    session: Any = builder.remote(remote).create()
    # Nothing is asked at the process's end, and a warning does not repeat what an error says. Its
    # client would ask the server once more at exit, with all its retries where that is gone; one
    # that was closed before does not. What is registered later runs earlier.
    atexit.register(session.client.close)
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]", category=UserWarning)
    for policy in session.client.get_retry_policies():
        policy.max_retries = RPC_RETRIES
    _ask(session, JOIN_SECONDS, partial(_prepare, session, conf))
    # The first column of a process asks the session that was made first for a setting, and keeps
    # the answer: later that session may be closed, or its server gone.
    functions.col("id")
    attached: SparkSession = session
    return attached


def _prepare(session: SparkSession, conf: Mapping[str, str]) -> None:
    for key, value in conf.items():
        session.conf.set(key, value)
    _ping(session)
    from pyspark.errors import PySparkException

    try:
        send(session, package(), pyfile=True)
    except PySparkException as error:
        if "ARTIFACT_ALREADY_EXISTS" not in str(error):  # another run has just sent it
            raise


def _ask(session: SparkSession, seconds: float, question: Callable[[], T]) -> T:
    """With a deadline, which the client has not: TimeoutError from a server that is silent."""
    try:
        return _within(seconds, question)
    except TimeoutError:
        forget(session)
        raise


def _ping(session: SparkSession) -> bool:
    """Asks for anything: from the first answer on, the client knows its server from another one."""
    return bool(session.conf.get("spark.sql.session.timeZone"))


def _within(seconds: float, ask: Callable[[], T]) -> T:
    """Returns what `ask` returns or raises; TimeoutError when it takes longer.

    It goes on in a thread that keeps no process from ending.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001 - raised where it was asked
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError as error:
        raise TimeoutError(f"no answer within {seconds:.0f} s") from error
