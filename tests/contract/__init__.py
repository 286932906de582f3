"""One behaviour suite per contract; every connector runs it with a driver of two verbs."""

from __future__ import annotations

from tests.contract import clickhouse_drivers, clickhouse_sink, drivers, files_drivers, real_drivers
from tests.contract.drivers import SinkDriver, SourceDriver
from tests.contract.kafka_target import KafkaTarget

SOURCES: dict[str, type[SourceDriver]] = {
    driver.type: driver
    for driver in (
        drivers.MemoryOffsets,
        drivers.MemoryParts,
        real_drivers.Kafka,
        files_drivers.FilesFolder,
        real_drivers.IcebergTable,
        clickhouse_drivers.ClickhouseTable,
        real_drivers.PostgresqlTable,
    )
}
SINKS: dict[str, type[SinkDriver]] = {
    driver.label(): driver
    for driver in (
        clickhouse_sink.Clickhouse,
        files_drivers.FilesTarget,
        files_drivers.FilesOnDisk,
        drivers.MemorySlice,
        drivers.MemorySpan,
        real_drivers.Iceberg,
        real_drivers.IcebergPartitioned,
        real_drivers.IcebergUpsert,
        KafkaTarget,
        real_drivers.Postgresql,
    )
}
