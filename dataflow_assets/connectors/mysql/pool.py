"""Connections that wait for the next slice: the handshake of one costs more than a small slice."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress

from dataflow_assets.connectors.mysql.client import MysqlClient
from dataflow_assets.connectors.mysql.errors import MysqlFailure
from dataflow_assets.connectors.mysql.options import MysqlConnection

_KEPT = 60.0  # seconds that one waits
_lock = threading.Lock()
_waiting = defaultdict[Hashable, list[tuple[float, MysqlClient]]](list)


@contextmanager
def lend(options: MysqlConnection) -> Iterator[MysqlClient]:
    """A connection outside of any transaction; after an error it is closed. Raises MysqlFailure."""
    client = take(options)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    give(options, client)


def take(options: MysqlConnection) -> MysqlClient:
    """Takes a connection out, until `give`; after an error close it. Raises MysqlFailure."""
    with _lock:
        idle = _waiting[_key(options)]
        _close_old(idle)
        client = idle.pop()[1] if idle else None
    if client is not None:
        with suppress(MysqlFailure):
            client.run("DO 0")
            return client
        client.close()
    return MysqlClient(options, "dataflow-sink")


def give(options: MysqlConnection, client: MysqlClient) -> None:
    """Keeps a connection that is outside of any transaction."""
    with _lock:
        for idle in _waiting.values():
            _close_old(idle)
        _waiting[_key(options)].append((time.monotonic() + _KEPT, client))


def _close_old(idle: list[tuple[float, MysqlClient]]) -> None:
    while idle and idle[0][0] < time.monotonic():
        idle.pop(0)[1].close()


def _key(options: MysqlConnection) -> Hashable:
    """A process that is forked has none of its parent's."""
    user, password = options.user, options.password and options.password.get_secret_value()
    tls = options.tls.model_dump_json() if options.tls else ""
    return os.getpid(), options.host, options.port, options.database, user, password, tls
