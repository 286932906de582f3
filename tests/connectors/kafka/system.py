"""Topics as ends of whole flows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar

import devservers
from tests.connectors.kafka.topics import committed
from tests.systems import Change, Config, Row, System, encoded_row


class Kafka(System):
    type = "kafka"
    tells_changes = True
    upsert: ClassVar[Config | None] = {"upsertMode": True, "conflictKey": "id"}

    def at(self, role: str, config: Config) -> Config:
        self.server: devservers.Kafka = self.request.getfixturevalue("kafka")
        here = {
            "brokers": [self.server.bootstrap],
            "topic": self.request.getfixturevalue("topic")(2),
        }
        group = {"consumerGroup": here["topic"]} if role == "source" else {}
        return {**config, **here, **group}

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        from confluent_kafka import Producer

        # in their order and once, also on a broker that has just come back
        settings = {
            "bootstrap.servers": self.server.bootstrap,
            "log_level": 0,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,  # nothing is sent before `flush`
        }
        producer = Producer(settings)
        for change in changes:
            body = None if change.op == "delete" else encoded_row(config, change.row)
            id_ = change.row["id"]
            producer.produce(config["topic"], body, b'{"id":%d}' % id_, partition=id_ % 2)
        assert producer.flush(30) == 0

    def send(self, config: Config, *bodies: bytes) -> None:
        """Messages as they are, of one partition."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.server.bootstrap, "log_level": 0})
        for body in bodies:
            producer.produce(config["topic"], body, b"k", partition=0)
        assert producer.flush(30) == 0

    def rows(self, config: Config) -> list[Row]:
        """The records; of a topic of states the last of each key."""
        found = [(key, json.loads(body) if body else None) for key, body in self.messages(config)]
        if not config.get("upsertMode"):
            return [row for _, row in found if row is not None]
        return [row for row in dict(found).values() if row is not None]

    def messages(self, config: Config) -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of each committed record, partition by partition."""
        found = committed(self.server.bootstrap, config["topic"])
        return [(message.key(), message.value()) for message in found]
