"""What the demos have in common whose shop sends messages: topics, an S3 store, ClickHouse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typing_extensions import override

from dataflow_assets.spark.process import Server
from devservers.clickhouse import ClickHouse
from devservers.demo.demo import Demo, Say
from devservers.kafka import Kafka
from devservers.seaweedfs import SERVICES, SeaweedFS

SEAWEEDFS = {
    "iceberg": 18181,
    "s3": 18333,
    **{name: 18334 + index for index, name in enumerate(name for name in SERVICES if name != "s3")},
    **{f"{name}.grpc": 18343 + index for index, name in enumerate(SERVICES)},
}
CLICKHOUSE = {"http": 18123}


class TopicsDemo(Demo):
    """A subclass adds its broker and its shop."""

    kafka: Kafka

    def __init__(self, folder: Path, offset: int, say: Say) -> None:
        super().__init__(folder, offset, say)
        self.seaweedfs = SeaweedFS(folder / "seaweedfs", ports=self.moved(SEAWEEDFS))
        self.clickhouse = ClickHouse(folder / "clickhouse", ports=self.moved(CLICKHOUSE))

    @property
    @override
    def servers(self) -> list[Server]:
        return [self.kafka, self.seaweedfs, self.clickhouse, *super().servers]

    @override
    def places(self) -> Iterator[tuple[str, str]]:
        yield "the rows", f"psql {self.dsn()}"
        yield "ClickHouse", self.clickhouse.dsn()

    def make_topics(self, partitions: Mapping[str, int]) -> None:
        """Makes the topics that are missing, each with so many partitions."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        known = admin.list_topics(timeout=10).topics
        new = [NewTopic(name, count, 1) for name, count in partitions.items() if name not in known]
        for made in admin.create_topics(new).values() if new else ():
            made.result(30)
