"""One behaviour suite per contract; every connector runs it with a driver of two verbs."""

from __future__ import annotations

from tests.contract import (
    clickhouse_drivers,
    drivers,
    files_drivers,
    iceberg_drivers,
    kafka_drivers,
    postgresql_drivers,
)
from tests.contract.drivers import SinkDriver, SourceDriver

SOURCES: dict[str, type[SourceDriver]] = {
    driver.type: driver
    for driver in (
        drivers.MemoryOffsets,
        drivers.MemoryParts,
        kafka_drivers.Kafka,
        files_drivers.FilesFolder,
        iceberg_drivers.IcebergTable,
        clickhouse_drivers.ClickhouseTable,
        postgresql_drivers.PostgresqlTable,
        postgresql_drivers.PostgresqlLog,
    )
}
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
        postgresql_drivers.Postgresql,
    )
}
