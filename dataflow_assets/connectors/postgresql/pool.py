"""The links of a process, lent for one operation: who does nothing keeps no connection.

Two hundred flows share a few links of a database. While one works for a flow it bears the flow's
name, by which a takeover finds what hangs. The name is set in the transaction and ends with it: a
link that waits here has nobody's name, so no takeover ends it under the next borrower. Links that
were ended while they waited are found by the statement that begins the work, and replaced.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.connectors.postgresql.client import BinaryLink, Driver, TextLink
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.errors import TransientError

MOST = 8
"""Links that the sinks of a process have of a database at once, and as many for its sources; who
comes later waits. No sink waits for a source: to plan a read of a large table may take minutes."""
PATIENCE = 60.0  # seconds for which they wait
IDLE_SECONDS = 60.0  # after which a link that nobody wanted is closed
LOCK_SECONDS = 10  # for which a commit waits for the lock of another transaction
NOBODY = "dataflow-assets"  # the name of a link that works for no flow
_ALIVE = "SELECT 1"


class Pool:
    """The links of one connection string and kind."""

    def __init__(self, connection: str, driver: Driver) -> None:
        self._connection = connection
        self._kind = TextLink if driver == "text" else BinaryLink
        self._idle: list[tuple[float, TextLink]] = []  # the one that waits longest comes first
        self._lock = threading.Lock()
        self._sweeping = False
        self.room = threading.BoundedSemaphore(MOST)
        self.room_of_sources = threading.BoundedSemaphore(MOST)

    @property
    def server(self) -> str:
        return dsn.server(self._connection)

    def take(self, first: str) -> TextLink:
        """A link that has run its first statement."""
        while (link := self._waiting()) is not None:
            try:
                link.execute(first)
            except PostgresqlFailure:
                link.close()  # it was ended while it waited
            else:
                return link
        link = self._kind(self._connection, NOBODY)
        try:
            link.execute(first)
        except BaseException:
            link.close()
            raise
        return link

    def give(self, link: TextLink) -> None:
        """Keeps a link for whoever comes next, unless it is in the middle of something."""
        if not link.at_rest:
            link.close()
            return
        with self._lock:
            self._idle.append((time.monotonic(), link))
            self._sweep_later()

    def close(self) -> None:
        while (link := self._waiting()) is not None:
            link.close()

    def _waiting(self) -> TextLink | None:
        with self._lock:
            return self._idle.pop()[1] if self._idle else None

    def _sweep_later(self) -> None:
        if self._idle and not self._sweeping:
            timer = threading.Timer(IDLE_SECONDS, self._sweep)
            timer.daemon = self._sweeping = True
            timer.start()

    def _sweep(self) -> None:
        with self._lock:
            before = time.monotonic() - IDLE_SECONDS
            cold = [link for since, link in self._idle if since <= before]
            self._idle = self._idle[len(cold) :]
            self._sweeping = False
            self._sweep_later()
        for link in cold:
            link.close()


_pools: dict[tuple[int, str, Driver], Pool] = {}


def take(connection: str, driver: Driver, application: str) -> TextLink:
    """For a writer: a link in a transaction of this name, however many there are by now.

    A task holds one for each branch until its slice ends: were it to wait for another, it would
    wait for itself.
    """
    return _pool(connection, driver).take(_begin(application))


def give(connection: str, driver: Driver, link: TextLink) -> None:
    """Takes a writer's link back, outside of any transaction."""
    _pool(connection, driver).give(link)


@contextmanager
def transaction(connection: str, application: str) -> Iterator[TextLink]:
    """One transaction of this name, committed at the end; any error rolls it back."""
    pool = _pool(connection, "text")
    with _lend(pool, pool.room, _begin(application)) as link:
        yield link
        link.execute("COMMIT")


@contextmanager
def lend(connection: str) -> Iterator[TextLink]:
    """A link in autocommit, for questions and for statements that are whole by themselves."""
    pool = _pool(connection, "text")
    with _lend(pool, pool.room, _ALIVE) as link:
        yield link


@contextmanager
def lent_to_source(connection: str) -> Iterator[TextLink]:
    """The same for the session of a source."""
    pool = _pool(connection, "text")
    with _lend(pool, pool.room_of_sources, _ALIVE) as link:
        yield link


@contextmanager
def _lend(pool: Pool, room: threading.BoundedSemaphore, first: str) -> Iterator[TextLink]:
    """A link for one operation. After an error it is closed: who knows what state it is in."""
    if not room.acquire(timeout=PATIENCE):
        raise TransientError(
            f"all {MOST} connections of this process to {pool.server} were busy for "
            f"{PATIENCE:g} seconds: its statements wait there, see pg_stat_activity"
        )
    try:
        link = pool.take(first)
        try:
            yield link
        except BaseException:
            link.close()  # the server rolls back
            raise
        pool.give(link)
    finally:
        room.release()


def _begin(application: str) -> str:
    """Other flows of a lane wait for the job of a writer that waits for a lock."""
    return (
        f"BEGIN; SET LOCAL application_name = '{application}'; "
        f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"
    )


def _pool(connection: str, driver: Driver) -> Pool:
    """The one of this process: a forked one cannot use its parent's."""
    key = (os.getpid(), connection, driver)
    return _pools.get(key) or _pools.setdefault(key, Pool(connection, driver))


def _close_idle() -> None:
    for (pid, *_), pool in [*_pools.items()]:
        if pid == os.getpid():
            pool.close()


atexit.register(_close_idle)
