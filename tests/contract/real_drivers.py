"""Test drivers of the connectors that need a server."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyiceberg.catalog import Catalog

import devservers
from dataflow_assets.connectors.iceberg import IcebergSink
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.postgresql import PostgresqlSink
from dataflow_assets.contracts import Sink, Source
from tests.contract.drivers import OffsetSourceDriver, Row, SinkDriver, encode


class Kafka(OffsetSourceDriver):
    type = "kafka"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.server: devservers.Kafka = request.getfixturevalue("kafka")
        self.topic: str = request.getfixturevalue("topic")(2)
        self.group = f"g-{uuid.uuid4().hex[:8]}"

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        producer = Producer({"bootstrap.servers": self.server.bootstrap})
        for index, body in enumerate([*map(encode, rows), *raw]):
            producer.produce(self.topic, body, partition=index % 2)
        assert producer.flush(30) == 0

    def recreate(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        admin.delete_topics([self.topic])[self.topic].result(20)
        deadline = time.monotonic() + 20
        while admin.create_topics([NewTopic(self.topic, 2)])[self.topic].exception(20):
            assert time.monotonic() < deadline  # the old one is not gone yet
            time.sleep(0.1)

    def declare(self) -> Source:
        return KafkaSource(
            brokers=(self.server.bootstrap,), topic=self.topic, consumer_group=self.group
        )


class Postgresql(SinkDriver):
    type = "postgresql"
    failpoints = (
        "drain.begun",
        "postgresql.begin",
        "postgresql.copy",
        "postgresql.before-commit",
        "postgresql.after-commit",
        "drain.passed",
        "postgresql.finish",
        "drain.finished",
    )

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.dsn = request.getfixturevalue("postgresql").dsn()
        self.schema: str = request.getfixturevalue("schema")
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"create table {self.schema}.target (id bigint not null, name text)")

    def declare(self) -> Sink:
        return PostgresqlSink(connection_string=self.dsn, table=f"{self.schema}.target")

    def rows(self) -> list[Row]:
        with psycopg.connect(self.dsn) as connection:
            sql = f"select id, name from {self.schema}.target order by 1, 2"
            return [(int(id_), str(name)) for id_, name in connection.execute(sql)]

    def rejected(self) -> list[str]:
        with psycopg.connect(self.dsn) as connection:
            sql = f"select reason from {self.schema}.dataflow_rejected order by 1"
            return [str(reason) for (reason,) in connection.execute(sql)]


class Iceberg(SinkDriver):
    type = "iceberg"
    failpoints = (
        "drain.begun",
        "iceberg.begin",
        "iceberg.staged",
        "drain.passed",
        "iceberg.before-commit",
        "iceberg.after-commit",
        "drain.finished",
    )

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.server: devservers.SeaweedFS = request.getfixturevalue("seaweedfs")
        self.catalog: Catalog = request.getfixturevalue("catalog")
        self.namespace: str = request.getfixturevalue("namespace")
        columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
        self.catalog.create_table((self.namespace, "target"), columns)

    def declare(self) -> Sink:
        return IcebergSink.model_validate(
            {
                "catalogURI": self.server.uri,
                "warehouse": self.server.warehouse,
                "namespace": self.namespace,
                "table": "target",
                "oauth2ClientID": self.server.access_key,
                "oauth2ClientSecret": self.server.secret_key,
                "s3Endpoint": self.server.s3_endpoint,
                "s3Region": "us-east-1",
                "accessKey": self.server.access_key,
                "secretAccessKey": self.server.secret_key,
            }
        )

    def rows(self) -> list[Row]:
        found = self.catalog.load_table((self.namespace, "target")).scan().to_arrow()
        return sorted((row["id"], row["name"]) for row in found.to_pylist())

    def rejected(self) -> list[str]:
        found = self.catalog.load_table((self.namespace, "target_rejected")).scan().to_arrow()
        reasons = {row["id"]: str(row["reason"]) for row in found.to_pylist()}
        return sorted(reasons.values())
