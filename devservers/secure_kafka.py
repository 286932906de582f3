"""A broker with a listener for each way to encrypt and to authenticate, and two wrong ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from typing_extensions import override

from dataflow_assets.spark.process import LOOPBACK
from devservers.certificates import EXPIRED, Authority, Certificate
from devservers.kafka import Kafka

PROTOCOLS = {
    "tls": "SSL",
    "mtls": "SSL",
    "sasl": "SASL_PLAINTEXT",
    "sasltls": "SASL_SSL",
    "expired": "SSL",
    "elsewhere": "SSL",
}
"""Listeners beside the plain one. `expired` shows a certificate that is no longer valid, and
`elsewhere` one for another host."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USERS = {name: f"{name}-s3cret-pw" for name in ("flow", "stranger", "narrow")}
"""Passwords of the users: `flow` may do everything, the others nothing."""
_MODULES = "org.apache.kafka.common.security"


@dataclass(eq=False, kw_only=True)
class SecureKafka(Kafka):
    """A broker; clients without authentication may do everything, as `flow` may."""

    port_names = ("kafka", "controller", *PROTOCOLS)

    def at(self, listener: str) -> str:
        """For `bootstrap.servers`: the broker's address for one of `PROTOCOLS`."""
        return f"{LOOPBACK}:{self.ports[listener]}"

    @cached_property
    def authority(self) -> Authority:
        """The CA of the broker's certificates, which it trusts for its clients'."""
        return Authority(self.folder / "certificates", "trusted")

    @cached_property
    def foreign(self) -> Authority:
        """Another CA, which nobody trusts."""
        return Authority(self.folder / "certificates", "foreign")

    @cached_property
    def client(self) -> Certificate:
        """Of the client that may do everything."""
        return self.authority.issue("flow")

    @override
    def _properties(self) -> dict[str, str]:
        found = super()._properties()
        listening = [f"{name.upper()}://{self.at(name)}" for name in PROTOCOLS]
        protocols = [f"{name.upper()}:{protocol}" for name, protocol in PROTOCOLS.items()]
        found["listeners"] = ",".join([found["listeners"], *listening])
        found["advertised.listeners"] = ",".join([found["advertised.listeners"], *listening])
        known = found["listener.security.protocol.map"]
        found["listener.security.protocol.map"] = ",".join([known, *protocols])
        return found | self._certificates() | _authentication() | _rights()

    @override
    def _format_options(self) -> list[str]:
        scram = [mechanism for mechanism in MECHANISMS if mechanism.startswith("SCRAM")]
        return [
            option
            for mechanism in scram
            for name, password in USERS.items()
            for option in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        ]

    def _certificates(self) -> dict[str, str]:
        shown = {
            "": self.authority.issue("broker"),
            "listener.name.expired.": self.authority.issue("old-broker", days=EXPIRED),
            "listener.name.elsewhere.": self.authority.issue(
                "other-broker", hosts=("DNS:elsewhere.example",)
            ),
        }
        found = {f"{prefix}ssl.keystore.location": str(c.bundle) for prefix, c in shown.items()}
        types = {f"{prefix}ssl.keystore.type": "PEM" for prefix in shown}
        trusted = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.ca),
            "listener.name.mtls.ssl.client.auth": "required",
        }
        return found | types | trusted


def _authentication() -> dict[str, str]:
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    plain = f"{_MODULES}.plain.PlainLoginModule required {users};"
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    found = {"sasl.enabled.mechanisms": ",".join(MECHANISMS)}
    for listener in ("sasl", "sasltls"):
        for mechanism in MECHANISMS:
            name = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
            found[name] = plain if mechanism == "PLAIN" else scram
    return found


def _rights() -> dict[str, str]:
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:flow;User:CN=flow",
    }
