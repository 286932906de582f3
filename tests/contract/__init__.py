"""One behaviour suite per contract; every connector runs it with a driver of two verbs."""

from __future__ import annotations

from tests.contract import (
    clickhouse_drivers,
    drivers,
    files_drivers,
    iceberg_drivers,
    kafka_connect_drivers,
    kafka_drivers,
    kinesis_drivers,
    mysql_drivers,
    nessie_drivers,
    postgresql_drivers,
    trino_drivers,
)
from tests.contract.drivers import SinkDriver, SourceDriver

SOURCES: dict[str, type[SourceDriver]] = {
    driver.type: driver
    for driver in (
        drivers.MemoryOffsets,
        drivers.MemoryParts,
        kafka_drivers.Kafka,
        kafka_connect_drivers.KafkaConnectLines,
        kinesis_drivers.KinesisStream,
        files_drivers.FilesFolder,
        iceberg_drivers.IcebergTable,
        nessie_drivers.NessieTable,
        clickhouse_drivers.ClickhouseTable,
        mysql_drivers.MysqlTable,
        postgresql_drivers.PostgresqlTable,
        trino_drivers.TrinoTable,
        postgresql_drivers.PostgresqlLog,
    )
}
CONNECTORS: dict[str, type[SourceDriver]] = {
    "kafkaConnect-debezium": kafka_connect_drivers.KafkaConnectDebezium,
    "kafkaConnect-mirror": kafka_connect_drivers.KafkaConnectMirror,
}
"""More connectors of one source, for `make test-all`: they differ in how they deliver."""
SINKS: dict[str, type[SinkDriver]] = {
    driver.label(): driver
    for driver in (
        clickhouse_drivers.Clickhouse,
        files_drivers.FilesTarget,
        files_drivers.FilesOnDisk,
        drivers.MemorySlice,
        drivers.MemorySpan,
        iceberg_drivers.Iceberg,
        iceberg_drivers.IcebergPartitioned,
        iceberg_drivers.IcebergUpsert,
        kafka_drivers.KafkaTarget,
        mysql_drivers.Mysql,
        mysql_drivers.MysqlUpsert,
        nessie_drivers.Nessie,
        nessie_drivers.NessieUpsert,
        postgresql_drivers.Postgresql,
        trino_drivers.Trino,
        trino_drivers.TrinoUpsert,
    )
}

VARIANTS = frozenset({"iceberg-partitioned", "files-disk"})
"""Sinks that differ from another one in how rows are laid out, or where files are, and not in how
they commit: `make test` has the laws of a drain for them, `make test-all` the rest."""
