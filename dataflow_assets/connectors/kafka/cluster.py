"""A Kafka cluster as its clients see it, and the one table of security settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dataflow_assets.secrets.tls import Material

Settings = tuple[tuple[str, str], ...]

# What a manifest says, and librdkafka's names for it: certificates are texts, never files.
_TLS = {"ca": "ssl.ca.pem", "cert": "ssl.certificate.pem", "key": "ssl.key.pem"}
_VERIFY = "enable.ssl.certificate.verification"


@dataclass(frozen=True)
class Cluster:
    """Address of a cluster, and credentials for it.

    Whoever has an equal one may share a connection.
    """

    bootstrap: str
    """The brokers, as `host:port,host:port`: what people are shown."""
    security: Settings = field(default=(), repr=False)
    """Settings with secrets in them; empty for plaintext without authentication."""
    tls: Material | None = field(default=None, repr=False)
    """The same for clients in Python; None where nothing is encrypted."""

    @property
    def settings(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, **dict(self.security)}

    @property
    def plain(self) -> bool:
        return not self.security


def security(protocol: str, tls: Material | None, sasl: Mapping[str, str] | None) -> Settings:
    """The settings that a client needs for a protocol.

    Called whenever a cluster is named, on the driver and in tasks.

    Args:
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        tls: certificates, where the protocol encrypts.
        sasl: `mechanism`, `username` and `password`, where it authenticates.

    Returns:
        Names and values in a fixed order; nothing for PLAINTEXT.
    """
    if protocol == "PLAINTEXT":
        return ()
    settings = {"security.protocol": protocol.lower()}
    if tls is not None:
        settings |= {name: text for key, name in _TLS.items() if (text := getattr(tls, key))}
        settings |= {} if tls.verify else {_VERIFY: "false"}
    if sasl is not None:
        settings |= {f"sasl.{key}": value for key, value in sasl.items()}
    return tuple(sorted(settings.items()))
