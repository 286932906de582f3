"""Which broker refuses TLS, or asks for it: librdkafka says that the handshake failed, not why."""

from __future__ import annotations

import re

from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.sdk import handshake
from dataflow_assets.secrets.tls import Material

_BROKER = re.compile(r"\w+://(\[[^\]]+\]|[^:/\s]+):(\d+)/")
_OPTIONS = handshake.Options(
    "tls.caFile", "tls.certFile", "tls.keyFile", "brokers, and in the broker's advertised.listeners"
)


def trouble(cluster: Cluster, complaint: str) -> str:
    """A clause on what must change about certificates or names; empty where nothing must.

    `complaint`: the client's own words, which name the broker.
    """
    for host, port in _brokers(cluster, complaint):
        if reason := handshake.trouble(cluster.tls or Material(), (host, port), _OPTIONS):
            return f"broker {host}:{port}: {reason}"
    return ""


def encrypts(cluster: Cluster, complaint: str) -> str:
    """Which listener speaks TLS although the client does not; empty where none is known to."""
    for host, port in _brokers(cluster, complaint):
        if handshake.encrypts((host, port)):
            return (
                f"broker {host}:{port}: this listener is encrypted: add the block tls, or name a "
                "listener that is not"
            )
    return ""


def _brokers(cluster: Cluster, complaint: str) -> list[tuple[str, int]]:
    match = _BROKER.search(complaint)
    brokers = [":".join(match.groups())] if match else cluster.bootstrap.split(",")
    pairs = (broker.rpartition(":") for broker in brokers)
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]
