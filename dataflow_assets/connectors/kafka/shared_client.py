"""The connection to a cluster that all questions of a process share, and how it is made."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from dataflow_assets.connectors.kafka.client_errors import ClientErrors
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.errors.likely_names import likely
from dataflow_assets.secrets.tls import warn_unchecked

LIST_SECONDS = 2.0  # of one attempt to list the topics
LISTED = 10.0  # seconds for which the names of topics are not asked for again
_OURS = ("__", "dataflow.checkpoints.")  # begin the names of topics that nobody writes by hand
CLIENT: dict[str, Any] = {
    "client.id": "dataflow-assets",
    "log_level": 0,  # what goes wrong is in our errors; librdkafka would write it to stderr
    "socket.keepalive.enable": True,
    "socket.connection.setup.timeout.ms": 5000,
    "reconnect.backoff.max.ms": 1000,
}


class KafkaClient:
    """A connection to a cluster, shared by all topics that are asked about.

    Each has threads and descriptors of its own: one per topic would use up those of a process that
    looks at a hundred topics. It is closed when the last one who asks is gone.
    """

    _lock = threading.Lock()
    _open: ClassVar[WeakValueDictionary[tuple[int, Cluster], KafkaClient]] = WeakValueDictionary()

    def __init__(self, cluster: Cluster) -> None:
        self.client_errors = ClientErrors(cluster)
        self.settings = CLIENT | cluster.settings | {"error_cb": self.client_errors.hear}
        self.admin = AdminClient(self.settings)
        self._names: tuple[float, tuple[str, ...]] = (-LISTED, ())

    @classmethod
    def of(cls, cluster: Cluster) -> KafkaClient:
        """The one of this process: a forked one cannot use its parent's."""
        if cluster.tls is not None and not cluster.tls.verify:
            warn_unchecked(f"kafka {cluster.bootstrap}")
        key = os.getpid(), cluster
        with cls._lock:
            client = cls._open.get(key)
            if client is None:
                client = cls._open[key] = cls(cluster)
            return client

    def alike(self, name: str) -> str | None:
        """The topic that was probably meant by a name that no topic has.

        Called on the driver once such a name was met: one request within ten seconds, however many
        of them there are. None where no topic is alike, or the cluster does not say.
        """
        listed_at, names = self._names
        if time.monotonic() - listed_at >= LISTED:
            with suppress(KafkaException):
                names = tuple(self.admin.list_topics(timeout=LIST_SECONDS).topics)
            self._names = time.monotonic(), names
        return likely(name, tuple(one for one in names if not one.startswith(_OURS)))
