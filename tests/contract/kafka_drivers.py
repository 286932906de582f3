"""Kafka in the contract tests: topics as a source and as a target."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

import devservers
from dataflow_assets.connectors.kafka import KafkaSink, KafkaSource
from dataflow_assets.connectors.kafka.sink.checkpoint_records import side_topic
from dataflow_assets.contracts import Sink, Source, Target
from devservers import Proxy
from tests import arrivals
from tests.connectors.kafka.impatient import impatient
from tests.connectors.kafka.topics import committed
from tests.contract.drivers import (
    OffsetSourceDriver,
    Row,
    SinkDriver,
    encode,
    pairs,
)
from tests.contract.remote import SECRET, Remote

PRODUCE, FETCH, END_TXN = 0, 1, 26  # Kafka's numbers of the requests


class _Topic(Remote):
    """What the drivers of source and sink share: a topic on the session's broker."""

    type = "kafka"
    partitions_made: ClassVar[int]
    """How many partitions the topic has."""
    request: pytest.FixtureRequest
    denied = r"kafka 127\.0\.0\.1:\d+: the broker refuses this client: .+; check sasl\.username"
    altered = None

    def prepare(self) -> None:
        self.server: devservers.Kafka = self.request.getfixturevalue("kafka")
        self.topic: str = self.request.getfixturevalue("topic")(self.partitions_made)
        self.bootstrap = self.server.bootstrap
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self.security: dict[str, Any] = {}

    def through(self) -> tuple[Proxy, ...]:
        server: devservers.ProxiedKafka = self.request.getfixturevalue("proxied_kafka")
        self.server, self.bootstrap = server, server.proxied
        self.admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        self.admin.create_topics([NewTopic(self.topic, self.partitions_made)])[self.topic].result(
            20
        )
        return (server.proxy,)

    def hasten(self, patch: pytest.MonkeyPatch) -> None:
        impatient(patch)

    def wrong_credentials(self) -> None:
        self.security = {"sasl": {"username": "nobody", "password": SECRET}}

    def alter(self) -> None:
        another = NewPartitions(self.topic, self.partitions_made + 1)
        self.admin.create_partitions([another])[self.topic].result(20)

    def mend(self) -> None:
        """Nothing: one partition more is no error."""

    def drop(self) -> None:
        self.admin.delete_topics([self.topic])[self.topic].result(20)


class Kafka(_Topic, OffsetSourceDriver):
    partitions_made = 2
    down = r"kafka 127\.0\.0\.1:\d+: describing the topic t_\w+: .+"
    dropped = r"topic t_\w+ does not exist on kafka 127\.0\.0\.1:\d+"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.prepare()
        self.group = f"g-{uuid.uuid4().hex[:8]}"

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        self._place(rows)
        producer = Producer({"bootstrap.servers": self.server.bootstrap, "log_level": 0})
        for index, body in enumerate([*map(encode, rows), *raw]):
            producer.produce(self.topic, body, partition=index % 2)
        assert producer.flush(30) == 0

    def recreate(self) -> None:
        self.drop()
        deadline = time.monotonic() + 20
        topic = NewTopic(self.topic, self.partitions_made)
        while self.admin.create_topics([topic])[self.topic].exception(20):
            assert time.monotonic() < deadline  # the old one is not gone yet
            time.sleep(0.1)

    def declare(self) -> Source:
        config = {"brokers": [self.bootstrap], "topic": self.topic, "consumerGroup": self.group}
        return KafkaSource.model_validate(config | self.security)

    def busy(self, request: bytes) -> bool:
        return _api_key(request) == FETCH

    final = busy


class KafkaTarget(_Topic, SinkDriver):
    partitions_made = 3
    in_task = "kafka.before-commit"
    emptying = "kafka.empty"
    failpoints = (
        "drain.begun",
        "kafka.begin",
        "kafka.produce",
        "kafka.before-commit",
        "kafka.after-commit",
        "drain.passed",
        "kafka.finish",
        "drain.finished",
    )
    bad = (b"not json", b'{"name": "x"}', b'{"id": null}')
    down = r"kafka 127\.0\.0\.1:\d+: looking for dataflow\.checkpoints\.\S+: .+"
    dropped = (
        r"topic t_\w+ (was deleted while the flow ran; create it again|does not exist on kafka)"
    )

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.prepare()

    def declare(self) -> Sink:
        config = {"brokers": [self.bootstrap], "topic": self.topic, "keyField": "id"}
        return KafkaSink.model_validate(config | {"compression": "lz4"} | self.security)

    def busy(self, request: bytes) -> bool:
        return _api_key(request) == PRODUCE

    def final(self, request: bytes) -> bool:
        return _api_key(request) == END_TXN

    def rows(self) -> list[Row]:
        return sorted(row for sequence in self.arrived() for row in sequence)

    def arrived(self) -> list[list[Row]]:
        return [pairs(rows) for rows in arrivals.kafka(self.server.bootstrap, self.topic)]

    def rejected(self) -> list[str]:
        found = [json.loads(m.value() or b"") for m in self._messages(f"{self.topic}.rejected")]
        return sorted(one["error"]["message"] for one in found)

    def rebuild(self, rows: Sequence[Row]) -> None:
        self.drop()
        deadline = time.monotonic() + 20
        while self.admin.create_topics([NewTopic(self.topic, 3)])[self.topic].exception(20):
            assert time.monotonic() < deadline  # the old one is not gone yet
            time.sleep(0.1)
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for row in rows:
            producer.produce(self.topic, encode(row), key=str(row[0]).encode())
        assert producer.flush(30) == 0

    def lose(self, target: Target) -> None:
        name = side_topic(target)
        self.admin.delete_topics([name])[name].result(20)

    def move(self, target: Target, offset: int) -> None:
        raise NotImplementedError("the driver alone writes its record")

    def _messages(self, topic: str) -> list[Message]:
        return committed(self.server.bootstrap, topic)


def _api_key(request: bytes) -> int:
    """Of the request's first message; four bytes before it tell its size."""
    return int.from_bytes(request[4:6], "big")
