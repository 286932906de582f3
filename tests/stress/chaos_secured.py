"""Topics of brokers that ask who is there: Avro over SASL and TLS, and JSON over mutual TLS.

What tests send and read themselves goes over the plain listener.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence

import devservers
from dataflow_assets.formats.avro_encoder import AvroEncoder
from dataflow_assets.formats.registry_client import RegistryClient
from devservers.secure_kafka import USERS
from tests.connectors.kafka.system import Kafka
from tests.systems import Change, Config, Fixtures

SCHEMA = {
    "type": "record",
    "name": "Change",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "n", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "price", "type": ["null", "double"], "default": None},
    ],
}


class _Secured(Kafka):
    """A topic of its own of the brokers `secure_kafka`."""

    def __init__(self, request: Fixtures) -> None:
        super().__init__(request)
        self.server = request.getfixturevalue("secure_kafka")

    def _place(self, listener: str) -> Config:
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        name = f"own_{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(name, 2)])[name].result(30)
        return {"brokers": [self._secure.at(listener)], "topic": name}

    @property
    def _secure(self) -> devservers.SecureKafka:
        assert isinstance(self.server, devservers.SecureKafka)
        return self.server


class ScramAvro(_Secured):
    """As a source: SCRAM over TLS, values with the number of a schema in a registry."""

    def at(self, role: str, config: Config) -> Config:  # noqa: ARG002 - only a source
        registry: devservers.Apicurio = self.request.getfixturevalue("apicurio")
        place = self._place("sasltls")
        schema = json.dumps(SCHEMA)
        number = RegistryClient(registry.url).register(f"{place['topic']}-value", "AVRO", schema)
        self._head = b"\0" + number.to_bytes(4, "big")
        self._encode = AvroEncoder(schema, ignore_unknown=False)
        login = {"mechanism": "scram-sha-512", "username": "flow", "password": USERS["flow"]}
        own = {"format": "avro", "schemaRegistry": {"url": registry.url}, "sasl": login}
        tls = {"tls": {"caFile": str(self._secure.authority.ca)}}
        return {**config, **place, **own, **tls, "consumerGroup": place["topic"]}

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": self.server.bootstrap, "enable.idempotence": True}
        producer = Producer({**settings, "log_level": 0})
        for change in changes:
            id_ = change.row["id"]
            value: bytes | None = None
            if change.op != "delete":
                value = self._head + self._encode(json.dumps(change.row).encode())
            producer.produce(config["topic"], value, b'{"id":%d}' % id_, partition=id_ % 2)
        assert producer.flush(30) == 0


class MutualTls(_Secured):
    """As a sink: the client shows a certificate."""

    def at(self, role: str, config: Config) -> Config:  # noqa: ARG002 - only a sink
        own, ca = self._secure.client, str(self._secure.authority.ca)
        tls = {"caFile": ca, "certFile": str(own.cert), "keyFile": str(own.key)}
        return {**config, **self._place("mtls"), "tls": tls}
