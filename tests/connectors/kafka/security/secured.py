"""Listeners that encrypt and authenticate, and flows through them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Message, Producer
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.contracts import Run
from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Report, Request
from devservers.secure_kafka import USERS
from tests.connectors.kafka.topics import committed

SOON = 30.0  # seconds within which a refusal is known, where a question waits for LONG
LONG = 60.0


Config = dict[str, Any]


def ca(broker: devservers.SecureKafka) -> Config:
    return {"caFile": str(broker.authority.ca)}


def mine(broker: devservers.SecureKafka) -> Config:
    return ca(broker) | {"certFile": str(broker.client.cert), "keyFile": str(broker.client.key)}


def texts(broker: devservers.SecureKafka) -> Config:
    """The same as PEM text, with something around it as some tools write it."""
    return {key: f"# {key}\n{Path(path).read_text()}\n" for key, path in mine(broker).items()}


def sasl(mechanism: str, user: str = "flow", password: str | None = None) -> Config:
    secret = USERS[user] if password is None else password
    return {"sasl": {"mechanism": mechanism, "username": user, "password": secret}}


Way = tuple[str, Callable[[devservers.SecureKafka], Config]]
"""A listener, and what a manifest says to use it."""


WAYS: dict[str, Way] = {
    "tls": ("tls", lambda broker: {"securityProtocol": "ssl", "tls": ca(broker)}),
    "mtls, files": ("mtls", lambda broker: {"tls": mine(broker)}),
    "mtls, texts": ("mtls", lambda broker: {"tls": texts(broker)}),
    "unchecked": ("tls", lambda _: {"tls": {"insecureSkipVerify": True}}),
    "unchecked, expired": ("expired", lambda _: {"tls": {"insecureSkipVerify": True}}),
    "unchecked, elsewhere": ("elsewhere", lambda _: {"tls": {"insecureSkipVerify": True}}),
    "plain": ("sasl", lambda _: sasl("plain")),
    "scram-sha-256": ("sasl", lambda _: sasl("scram-sha-256")),
    "scram-sha-512": ("sasl", lambda _: sasl("SCRAM-SHA-512")),
    "plain, tls": ("sasltls", lambda broker: sasl("plain") | {"tls": ca(broker)}),
    "scram-sha-256, tls": ("sasltls", lambda broker: sasl("scram-sha-256") | {"tls": ca(broker)}),
    "scram-sha-512, tls": (
        "sasltls",
        lambda broker: {"securityProtocol": "SASL_SSL", "tls": ca(broker)} | sasl("scram-sha-512"),
    ),
}


def send(broker: devservers.SecureKafka, topic: str, bodies: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 20})
    for number, body in enumerate(bodies):
        producer.produce(topic, body, b"k%d" % (number % 7), partition=number % 2)
        producer.poll(0)
    assert producer.flush(30) == 0


def body(number: int) -> bytes:
    return b'{"id":%d,"name":"name-%d"}' % (number, number)


def manifest(folder: Path, source: Config, sink: Config, **spec: Any) -> Flow:
    """A flow as a user declares it."""
    declared = {
        "apiVersion": "dataflow.dataflow.io/v1",
        "kind": "DataFlow",
        "metadata": {"name": "secured"},
        "spec": {
            "source": {"type": "kafka", "config": {"startingOffsets": "earliest", **source}},
            "sink": sink,
            **spec,
        },
    }
    path = folder / "flow.yaml"
    path.write_text(json.dumps(declared))
    loaded = load(path)
    assert not loaded.findings
    (flow,) = loaded.flows
    return flow.resolve()


def run(flow: Flow, engine: SparkSession) -> list[Report]:
    request = Request(run=Run(), patience=Patience(20, 0.01, 0.05))
    return list(drain(flow, lambda: engine, request))


def expect(broker: devservers.SecureKafka, topic: str, wanted: list[bytes]) -> None:
    """These values, in their order within each partition of the source, each once."""
    found = committed(broker.bootstrap, topic)
    assert sorted(values(found)) == sorted(wanted)
    keys = {value: b"k%d" % (number % 7) for number, value in enumerate(wanted)}
    assert {one.value(): one.key() for one in found} == keys
    for parity in (0, 1):
        mine = {value: None for value in wanted if json.loads(value)["id"] % 2 == parity}
        for partition in {one.partition() for one in found}:
            there = {one.value() or b"": None for one in found if one.partition() == partition}
            assert [v for v in mine if v in there] == [v for v in there if v in mine]


def values(found: list[Message]) -> list[bytes]:
    return [one.value() or b"" for one in found]


def is_clean(error: DataflowError, sentence: str) -> None:
    text = str(error)
    assert re.search(sentence, text), text
    assert "\n" not in text
    assert not any(word in text for word in ("s3cret", "BEGIN", "Traceback"))
