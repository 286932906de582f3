"""One client of a server for all sessions of a process, and not one for each of two hundred flows.

Each has connections of its own, and a megabyte of the server's settings. Statements of one client
may overlap: it has no session on the server, and lends a connection to each statement.
"""

from __future__ import annotations

import os
import threading
from collections import Counter

from dataflow_assets.connectors.clickhouse.client import Client, connect

NAME = "dataflow-assets"


class SharedClient:
    """The client of one connection string, while somebody uses it."""

    def __init__(self, connection: str) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._current: Client | None = None
        self._users: Counter[Client] = Counter()

    def join(self) -> Client:
        """The client; a new one where the host it speaks to answers no more. Raises Failure."""
        with self._lock:
            if self._current is None or not self._current.ping():
                self._current = connect(self._connection, NAME)
            self._users[self._current] += 1
            return self._current

    def leave(self, client: Client) -> None:
        """The last one who leaves a client closes it."""
        with self._lock:
            self._users[client] -= 1
            last = self._users[client] == 0
            if last:
                del self._users[client]
                self._current = None if self._current is client else self._current
        if last:
            client.close()


class ClickhouseLease:
    """The use of a shared client by one session. Raises Failure where no host answers."""

    def __init__(self, connection: str) -> None:
        key = (os.getpid(), connection)  # a forked process cannot use its parent's
        self._shared = _shared.get(key) or _shared.setdefault(key, SharedClient(connection))
        self.client = self._shared.join()
        self._ended = False

    def close(self) -> None:
        ended, self._ended = self._ended, True
        if not ended:
            self._shared.leave(self.client)


_shared: dict[tuple[int, str], SharedClient] = {}
