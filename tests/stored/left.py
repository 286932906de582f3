"""How the flow of each system was left: where its second run was killed, and where its replay."""

from __future__ import annotations

from dataclasses import dataclass

from tests.stored.databases import (
    Clickhouse,
    ClickhouseUpsert,
    Memory,
    Postgresql,
    PostgresqlUpsert,
)
from tests.stored.folders import Folder, Iceberg, IcebergUpsert
from tests.stored.stores import Stores
from tests.stored.topics import Kafka, KafkaUpsert


@dataclass(frozen=True)
class Left:
    """One system, and the failpoints."""

    system: type[Stores]
    in_drain: str
    in_replay: str


LEFT = {
    "clickhouse": Left(Clickhouse, "clickhouse.recorded:kill", "clickhouse.recorded:kill"),
    "clickhouse-upsert": Left(ClickhouseUpsert, "clickhouse.inserted:kill", "clickhouse.done:kill"),
    "files": Left(Folder, "files.committed:kill:2", "files.committed:kill:2"),
    "iceberg": Left(Iceberg, "iceberg.after-commit:kill:2", "iceberg.after-commit:kill:3"),
    "iceberg-upsert": Left(IcebergUpsert, "iceberg.merged:kill", "iceberg.after-commit:kill:2"),
    "kafka": Left(Kafka, "kafka.after-commit:kill", "kafka.after-commit:kill"),
    "kafka-upsert": Left(KafkaUpsert, "kafka.finish:kill", "kafka.finish:kill"),
    "memory": Left(Memory, "memory.committed:kill", "memory.committed:kill"),
    "postgresql": Left(Postgresql, "postgresql.after-commit:kill", "postgresql.after-commit:kill"),
    "postgresql-upsert": Left(PostgresqlUpsert, "postgresql.finish:kill", "postgresql.finish:kill"),
}
