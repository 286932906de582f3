"""A SQL file with one source, one target and one INSERT, and the topics of both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

import devservers
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.connectors.kafka.topics import AT_ONCE, meet

Sent = tuple[bytes | None, bytes | None]
"""Key and value."""
PAGE_TABLES = """
CREATE TABLE pageviews_per_region (
  user_region STRING,
  pv BIGINT,
  uv BIGINT,
  PRIMARY KEY (user_region) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'pageviews_per_region',
  'properties.bootstrap.servers' = '...',
  'key.format' = 'avro',
  'value.format' = 'avro'
);

CREATE TABLE pageviews (
  user_id BIGINT,
  page_id BIGINT,
  viewtime TIMESTAMP,
  user_region STRING,
  WATERMARK FOR viewtime AS viewtime - INTERVAL '2' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'pageviews',
  'properties.bootstrap.servers' = '...',
  'format' = 'json'
);
"""
"""Of Flink's page on upsert-kafka, as they are."""


@dataclass(frozen=True)
class Sql:
    """Where the file is, and between which topics."""

    path: Path
    kafka: devservers.Kafka
    source: str
    target: str

    def write(self, columns: str, into: str, insert: str, settings: str = "", **more: Any) -> Flow:
        """The file. `source_with` and `target_with`: options beside topic and brokers."""
        source = self._table("s", columns, self.source, more.get("source_with", {}))
        target = self._table("o", into, self.target, more.get("target_with", {}))
        self.path.write_text("\n".join([settings, source, target, f"INSERT INTO o {insert};"]))
        return choose(load(self.path), None)

    def _table(self, name: str, columns: str, topic: str, given: Mapping[str, str]) -> str:
        if "connector" in given:
            return _declared(name, columns, given)
        options = {
            "connector": "upsert-kafka" if "PRIMARY KEY" in columns else "kafka",
            "topic": topic,
            "properties.bootstrap.servers": self.kafka.bootstrap,
        }
        if "PRIMARY KEY" in columns:
            options |= {"key.format": "json", "value.format": "json"}
        elif "format" not in given and "value.format" not in given:
            options["format"] = "json"
        return _declared(name, columns, options | dict(given))

    def send_to_target(self, messages: Iterable[Sent]) -> None:
        """What others have written there."""
        replace(self, source=self.target).send(messages)

    def send(self, messages: Iterable[Sent], partitions: int = 1) -> None:
        """By the key, as Java's producers do."""
        producer = Producer(
            {
                "bootstrap.servers": self.kafka.bootstrap,
                "partitioner": "murmur2_random",
                "log_level": 0,
            }
        )
        for key, value in messages:
            if partitions == 1:
                producer.produce(self.source, value, key, partition=0)
            else:
                producer.produce(self.source, value, key)
        assert producer.flush(60) == 0

    def stored(self, topic: str = "") -> list[tuple[int, bytes | None, bytes | None]]:
        """What readers of committed records see, by partition: partition, key, value."""
        found = messages(self.kafka.bootstrap, topic or self.target)
        return [(one.partition() or 0, one.key(), one.value()) for one in found]

    def rows(self) -> list[Sent]:
        """Of a target with one partition."""
        return [(key, value) for _, key, value in self.stored()]


def _declared(name: str, columns: str, options: Mapping[str, str]) -> str:
    lines = [f"  '{key}' = '{value}'" for key, value in options.items()]
    return f"CREATE TABLE {name} ({columns}) WITH (\n" + ",\n".join(lines) + "\n);"


def messages(bootstrap: str, topic: str) -> Iterator[Message]:
    """What readers of committed records see, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        | AT_ONCE
    )
    partitions = sorted(consumer.list_topics(topic, 20).topics[topic].partitions)
    meet(consumer, topic, partitions)
    for partition in partitions:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while (message := consumer.poll(20)) is not None and message.error() is None:
            yield message
    consumer.close()


def latest(stored: Sequence[tuple[int, bytes | None, bytes | None]]) -> dict[bytes | None, bytes]:
    """The table that an upsert topic is: the last value of each key, without deleted ones."""
    found = {key: value for _, key, value in stored}
    return {key: value for key, value in found.items() if value is not None}
