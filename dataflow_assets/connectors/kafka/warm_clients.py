"""Clients that stay connected between two uses, until nobody has used them for a while.

Another password of the same user is no reason to give one up at once: flows with several passwords
may run side by side, and `$ConnectionString`, the user of Azure Event Hubs, is the name of all
users there. But then both are used, and a password that was replaced is not.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from dataflow_assets.connectors.kafka.cluster import Cluster

UNUSED_SECONDS = 600.0
"""After which a client is given up once another one is used."""
REPLACED_SECONDS = 60.0
"""The same of a client whose user logs in otherwise by now: its password, or its certificate, may
be an old one, with which it would log in again and again until the brokers lock the account."""
LOOK_SECONDS = 1.0  # between two looks at which clients were refused: there may be hundreds

Client = TypeVar("Client")
_Key = tuple[int, Cluster, Hashable]


def _let_go(_: object) -> None:
    pass


def _taken_in(_: object) -> bool:
    return False


class WarmClients(Generic[Client]):
    """Clients of one kind, by cluster; threads may share them, and a fork makes its own.

    `close`: ends a client that is given up, which may be in use just then; by default a client ends
    with the last one who holds it. `refused`: whether the login of a client was refused, where it
    does not end by itself then: it is given up once another one is used.
    """

    def __init__(
        self,
        close: Callable[[Client], object] = _let_go,
        refused: Callable[[Client], bool] = _taken_in,
    ) -> None:
        self._close, self._refused = close, refused
        self._lock = threading.Lock()
        self._kept: dict[_Key, tuple[Client, float]] = {}  # and when it was used last
        self._looked = -LOOK_SECONDS

    def of(self, cluster: Cluster, made: Callable[[], Client], way: Hashable = None) -> Client:
        """The cluster's client that asks in this way; `made` makes it where there is none."""
        key = os.getpid(), cluster, way
        with self._lock:
            client = self._kept[key][0] if key in self._kept else made()
            self._kept[key] = client, time.monotonic()
            given_up = [self._kept.pop(one)[0] for one in self._not_needed_beside(key)]
        for one in given_up:
            self._close(one)
        return client

    def _not_needed_beside(self, new: _Key) -> list[_Key]:
        now = self._kept[new][1]
        looks = now - self._looked >= LOOK_SECONDS
        if looks:
            self._looked = now
        others = [one for one in self._kept if one[0] == new[0] and one != new]  # none of a parent
        return [
            one
            for one in others
            if now - self._kept[one][1] > _patience(one[1], new[1])
            or (looks and self._refused(self._kept[one][0]))
        ]


def _patience(cluster: Cluster, new: Cluster) -> float:
    """For how long a client may be unused, beside one that is used now."""
    replaced = cluster != new and _who(cluster) == _who(new)
    return REPLACED_SECONDS if replaced else UNUSED_SECONDS


def _who(cluster: Cluster) -> tuple[str, str]:
    """The brokers, and the user's name; a certificate has no other."""
    return cluster.bootstrap, dict(cluster.security).get("sasl.username", "")
