"""The stores that are topics of Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from dataflow_assets.connectors.kafka.headers import headers
from dataflow_assets.connectors.kafka.sink.checkpoint_records import side_topic
from dataflow_assets.contracts import Target
from tests.connectors.kafka.topics import committed
from tests.stored.stores import Config, Row, Stores, of_replay


class Kafka(Stores):
    """The topic of the target, that of its rejected records, and those of its checkpoints."""

    type = "kafka"

    def make(self) -> None:
        self.bootstrap: str = self.request.getfixturevalue("kafka").bootstrap
        self.topic: str = self.request.getfixturevalue("topic")(2)

    def names(self) -> dict[str, str]:
        names = {"target": self.topic, "target_id": topic_id(self.bootstrap, self.topic)}
        return names | {"address": self.bootstrap}

    def hashed(self, target: Target) -> dict[str, str]:
        return {"side": side_topic(target), "side_of_replay": side_topic(of_replay(target))}

    def config(self) -> Config:
        return {"brokers": [self.bootstrap], "topic": self.topic}

    def rows(self) -> list[Row]:
        found = committed(self.bootstrap, self.topic)
        rows = [json.loads(message.value() or b"") for message in found]
        return sorted((row["id"], row["name"]) for row in rows)

    def dump(self) -> Any:
        """The names of all of them have that of the target in them."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        names = sorted(name for name in admin.list_topics(timeout=30).topics if self.topic in name)
        return {name: [_texts(one) for one in committed(self.bootstrap, name)] for name in names}

    def load(self, dumped: Any) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        new = [
            NewTopic(name, 1 + max(one["partition"] for one in records))
            for name, records in dumped.items()
            if records and name != self.topic
        ]
        for made in admin.create_topics(new).values():
            made.result(30)
        self.request.addfinalizer(lambda: admin.delete_topics([one.topic for one in new]))
        send(self.bootstrap, [(name, one) for name, records in dumped.items() for one in records])


class KafkaUpsert(Kafka):
    """The last record of each key counts."""

    def config(self) -> Config:
        return super().config() | {"upsertMode": True, "conflictKey": "id"}

    def rows(self) -> list[Row]:
        found = {one.key(): one.value() for one in committed(self.bootstrap, self.topic)}
        rows = [json.loads(value or b"") for value in found.values()]
        return sorted((row["id"], row["name"]) for row in rows)


def topic_id(bootstrap: str, topic: str) -> str:
    """Another one for each topic that had this name."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    found = admin.describe_topics(TopicCollection([topic]), request_timeout=30)
    return str(found[topic].result().topic_id)


def send(bootstrap: str, records: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """To topics: records with `partition`, `key`, `value` and `headers`."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for topic, record in records:
        producer.produce(topic, **record)
    assert producer.flush(30) == 0


def _texts(message: Message) -> Config:
    found = {name: value.decode() for name, value in headers(message) if value}
    key, value = message.key(), message.value()
    return {
        "partition": message.partition(),
        "key": key if key is None else key.decode(),
        "value": value if value is None else value.decode(),
        "headers": found,
    }
