"""Options of the connection to a Kafka topic: the declared part, without network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    SecretStr,
    field_validator,
)
from typing_extensions import override

from dataflow_assets.connectors.kafka.cluster import Cluster, security
from dataflow_assets.contracts import Address, Connector
from dataflow_assets.errors import PermanentError
from dataflow_assets.secrets import Fills, SecretRef
from dataflow_assets.secrets.tls import Tls
from dataflow_assets.spec import Spec

Ref = SecretRef | None
Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["plain", "scram-sha-256", "scram-sha-512"]

DEFAULT_PORT = "9092"
_BROKER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:,/]+):\d{1,5}")
NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")  # Kafka's own rule


class Sasl(Spec):
    """Authentication by user name and password."""

    mechanism: Mechanism = "plain"
    """SASL mechanism."""
    username: str | None = None
    """User name."""
    username_secret_ref: Annotated[Ref, Fills("username", required=True)] = None
    """Secret with the user name."""
    password: SecretStr | None = None
    """Password."""
    password_secret_ref: Annotated[Ref, Fills("password", required=True)] = None
    """Secret with the password."""

    @field_validator("mechanism", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        return (value.strip().lower() or "plain") if isinstance(value, str) else value

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        for name in ("username", "password"):
            if not (getattr(self, name) or getattr(self, f"{name}_secret_ref")):
                yield f"{name} is required: set {name} or {name}SecretRef"

    def settings(self) -> dict[str, str]:
        """Mechanism, user name and password. Raises PermanentError where a secret is empty."""
        password = self.password.get_secret_value() if self.password else ""
        credentials = {"username": self.username or "", "password": password}
        for name in (name for name, value in credentials.items() if not value):
            raise PermanentError(f"sasl.{name} is required, and its secret is empty")
        return {"mechanism": self.mechanism.upper(), **credentials}


class KafkaConnection(Connector):
    """The keys that source and sink share: brokers, topic, security."""

    brokers: tuple[str, ...] = ()
    """Bootstrap servers, each `host:port`; in a Secret they are separated by commas."""
    brokers_secret_ref: Annotated[Ref, Fills("brokers", required=True)] = None
    """Secret with the brokers, separated by commas."""
    topic: str = ""
    """Name of the topic."""
    topic_secret_ref: Annotated[Ref, Fills("topic", required=True)] = None
    """Secret with the topic's name."""
    security_protocol: Protocol | None = None
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; follows from `tls` and `sasl` by default."""
    tls: Tls | None = None
    """Encryption; `tls: {}` where public authorities have signed the brokers' certificates."""
    sasl: Sasl | None = None
    """Authentication."""

    @field_validator("security_protocol", mode="before")
    @classmethod
    def _normalise(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return value.strip().upper().replace("-", "_").replace(" ", "_") or None

    @field_validator("brokers")
    @classmethod
    def _with_ports(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(_BROKER.fullmatch(broker) for broker in value):
            raise ValueError("must each be host:port")
        return value

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        for name in ("brokers", "topic"):
            if not (getattr(self, name) or getattr(self, f"{name}_secret_ref")):
                yield f"{name} is required: set {name} or {name}SecretRef"
        if self.topic and not NAME.fullmatch(self.topic):
            yield (
                "topic: not a topic's name: letters a-z, digits, `.`, `_` and `-` are allowed, up "
                "to 249"
            )
        if self.security_protocol:
            yield from _matrix(self.security_protocol, {"tls": self.tls, "sasl": self.sasl})

    @property
    def protocol(self) -> Protocol:
        """The protocol that is spoken: as declared, else by what `tls` and `sasl` ask for."""
        if self.security_protocol:
            return self.security_protocol
        if self.sasl is not None:
            return "SASL_PLAINTEXT" if self.tls is None else "SASL_SSL"
        return "PLAINTEXT" if self.tls is None else "SSL"

    @override
    def address(self) -> Address:
        ref = self.topic_secret_ref
        return Address("kafka", self._connection(), None, ref.label if ref else self.topic)

    @override
    def resolved_address(self) -> Address:
        return Address("kafka", self._connection(), None, self.topic)

    def _connection(self) -> str:
        if self.brokers_secret_ref:
            return _slug(self.brokers_secret_ref.name)
        return _slug(self.brokers[0].removesuffix(f":{DEFAULT_PORT}"))

    @override
    def spellings(self) -> tuple[str | SecretRef, ...]:
        """Each of the brokers; the default port may be left out."""
        if self.brokers_secret_ref:
            return (self.brokers_secret_ref,)
        pairs = ((broker, broker.removesuffix(f":{DEFAULT_PORT}")) for broker in self.brokers)
        return tuple(dict.fromkeys(spelling for pair in pairs for spelling in pair))

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        if self.protocol == "SASL_PLAINTEXT" and self.sasl and self.sasl.mechanism == "plain":
            yield (
                "sasl",
                "the password goes over the network as it is: use tls, or a SCRAM mechanism",
            )

    def cluster(self) -> Cluster:
        """Address of the brokers, and credentials for them.

        Raises PermanentError for broken secrets and files.
        """
        if not NAME.fullmatch(self.topic):
            raise PermanentError(
                "the secret of topicSecretRef must hold the name of a topic: letters a-z, digits, "
                "`.`, `_` and `-`, without spaces and line breaks"
            )
        material = self.tls.material() if self.tls else None
        sasl = self.sasl.settings() if self.sasl else None
        return Cluster(self.bootstrap(), security(self.protocol, material, sasl), material)

    def bootstrap(self) -> str:
        """The brokers as every client takes them. Raises PermanentError for a broken secret."""
        if not self.brokers or not all(_BROKER.fullmatch(broker) for broker in self.brokers):
            raise PermanentError("the secret of brokersSecretRef must hold host:port,host:port,...")
        return ",".join(self.brokers)


def _matrix(protocol: str, blocks: Mapping[str, Spec | None]) -> Iterator[str]:
    needed = {"SSL": "tls", "SASL": "sasl"}
    needs = [needed[part] for part in reversed(protocol.split("_")) if part in needed]
    for key in (key for key, block in blocks.items() if block is not None and key not in needs):
        yield f"securityProtocol: {protocol} forbids the block {key}; leave one of them out"
    missing = [key for key in needs if blocks[key] is None]
    if missing:
        missing_blocks = f"block{'s' * (len(missing) - 1)} {' and '.join(missing)}"
        add = "it" if len(missing) == 1 else "them"
        yield f"securityProtocol: {protocol} requires the {missing_blocks}; add {add}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
