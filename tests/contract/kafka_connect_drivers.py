"""Test drivers of connectors of Kafka Connect: lines of a file, topics, rows that are followed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import psycopg
import pytest
from confluent_kafka import Producer

import devservers
from dataflow_assets.connectors.kafka_connect import KafkaConnectSource
from dataflow_assets.contracts import Source
from tests.connectors.kafka_connect import debezium
from tests.connectors.kafka_connect.driver import mirroring, plugins, source
from tests.contract.drivers import Row, SourceDriver, encode

PARTITIONS = 2


class _Connector(SourceDriver):
    """A connector, whose records are what was seeded."""

    type = "kafkaConnect"
    has_server: ClassVar[bool] = False
    knows_ahead: ClassVar[bool] = False
    small_spans: ClassVar[bool] = False
    shared: ClassVar[bool] = False

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.folder: Path = request.getfixturevalue("tmp_path")


class KafkaConnectLines(_Connector):
    """One task reads the file that grows."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.file = self.folder / "lines.jsonl"
        self.file.touch()

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        with self.file.open("ab") as file:
            file.writelines(body + b"\n" for body in [*map(encode, rows), *raw])

    def declare(self) -> Source:
        config = {"file": str(self.file), "topic": "lines"}
        options = {"tasksMax": 1, "envelope": False}
        reading = source(self.folder, "FileStreamSourceConnector", config, **options)
        return KafkaConnectSource.model_validate(reading)


class KafkaConnectMirror(_Connector):
    """A task for each of two partitions of a topic."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.server: devservers.Kafka = request.getfixturevalue("kafka")
        self.topic: str = request.getfixturevalue("topic")(PARTITIONS)
        self.config = mirroring(self.server, self.topic)  # the alias is part of each offset

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        settings = {"bootstrap.servers": self.server.bootstrap, "enable.idempotence": True}
        producer = Producer({**settings, "log_level": 0})
        for number, body in enumerate([*map(encode, rows), *raw]):
            producer.produce(self.topic, body, partition=number % PARTITIONS)
        assert producer.flush(60) == 0

    def declare(self) -> Source:
        options = {"tasksMax": PARTITIONS, "envelope": False, "heap": "256m"}
        reading = source(self.folder, "MirrorSourceConnector", self.config, **options)
        return KafkaConnectSource.model_validate(reading)


class KafkaConnectDebezium(_Connector):
    """A table whose rows are bodies: the first ones are a snapshot, others come from the log."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.server: devservers.PostgreSQL = request.getfixturevalue("postgresql")
        self.schema: str = request.getfixturevalue("schema")
        self._run(f"CREATE TABLE {self.schema}.rows (n serial PRIMARY KEY, body text)")
        request.addfinalizer(self._end)

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        for body in [*map(encode, rows), *raw]:
            self._run(f"INSERT INTO {self.schema}.rows (body) VALUES (%s)", body.decode())

    def declare(self) -> Source:
        config = debezium.settings(self.server, self.schema) | {
            "transforms": "row,body",
            "transforms.row.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.body.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
            "transforms.body.field": "body",
        }
        options = {"tasksMax": 1, "envelope": False, "heap": "256m"}
        reading = source(self.folder, debezium.CLASS, config, **options)
        reading["plugins"] = [plugins(self.folder / "debezium", "connect-debezium")]
        return KafkaConnectSource.model_validate(reading)

    def _run(self, statement: str, *values: str) -> None:
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            connection.execute(statement.encode(), values or None)

    def _end(self) -> None:
        """A process that an interrupted test leaves does not keep the slot."""
        self._run(
            "SELECT pg_terminate_backend(active_pid, 5000), pg_drop_replication_slot(slot_name) "
            f"FROM pg_replication_slots WHERE slot_name = '{self.schema}'"
        )
        self._run(f"DROP PUBLICATION IF EXISTS {self.schema}")
