"""A few clients for the consumer groups of a cluster, shared by all sessions of the process.

Each client has threads and descriptors of its own, and belongs to one group: one for each of two
hundred flows would use up those of the process. Those used last are kept.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.consumer_group import CLOSE_SECONDS, KafkaGroup

MOST = 4  # clients that stay; many flows name no group of their own and share one


class KafkaGroups:
    """The clients of one cluster. Whoever joins has to leave."""

    _joining = threading.Lock()
    _open: ClassVar[dict[tuple[int, Cluster], KafkaGroups]] = {}

    def __init__(self, cluster: Cluster, settings: Mapping[str, Any]) -> None:
        self._key = os.getpid(), cluster
        self._settings = settings
        self.users = 0
        self._refusals: set[str] = set()
        self._lock = threading.Lock()
        self._groups: dict[str, KafkaGroup] = {}  # the one used last comes last

    @classmethod
    def join(cls, cluster: Cluster, settings: Mapping[str, Any]) -> KafkaGroups:
        """Returns those of the cluster; `settings` are those of a client of it."""
        with cls._joining:
            key = os.getpid(), cluster
            groups = cls._open.get(key) or cls(cluster, settings)
            cls._open[key] = groups
            groups.users += 1
            return groups

    def leave(self, topic: str) -> None:
        """Waits a while for answers about the topic; the last one who leaves closes all."""
        self._wait(topic)
        with self._joining:
            self.users -= 1
            if self.users:
                return
            self._open.pop(self._key, None)
        with self._lock:
            left, self._groups = self._groups, {}
        for group in left.values():
            group.close()

    def commit(
        self,
        group: str,
        topic: str,
        offsets: Mapping[int, int],
        mark: str,
        epochs: Mapping[int, int],
    ) -> None:
        """Begins to store offsets for the group; what goes wrong is logged once, not raised."""
        with self._lock:  # who is closed is out of the dictionary first
            open_group = self._groups.pop(group, None)
            self._groups[group] = open_group or KafkaGroup(self._settings, group, self._refusals)
            self._groups[group].commit(topic, offsets, mark, epochs)
            over = [*self._groups][:-MOST]
            unused = [self._groups.pop(name) for name in over]
        for one in unused:
            one.close()

    def _wait(self, topic: str) -> None:
        deadline = time.monotonic() + CLOSE_SECONDS
        while self._waits_for(topic) and time.monotonic() < deadline:
            time.sleep(0.01)
        with self._lock:
            for group in self._groups.values():
                group.give_up(topic)

    def _waits_for(self, topic: str) -> bool:
        with self._lock:
            return any(group.waits_for(topic) for group in self._groups.values())
