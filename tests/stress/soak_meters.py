"""What the soak measures: what a process holds, and what flows leave behind in the systems."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from dataflow_assets.spark.process import Server
from tests.own_servers import Own
from tests.stress.chaos_kills import workers

MB = 1 << 20


@dataclass(frozen=True)
class Meter:
    """One number over time, and how far its last third may lie above its first."""

    name: str
    read: Callable[[], float]
    factor: float
    more: float

    def bound(self, first: float) -> float:
        """The most that the last third may show."""
        return first * self.factor + self.more

    @property
    def tolerance(self) -> str:
        """For the page."""
        return f"x {self.factor:g} + {self.more:g}"


@dataclass(frozen=True)
class Trend:
    """A meter's first and last third, after the warm-up, each by its median."""

    meter: Meter
    first: float
    last: float

    @property
    def flat(self) -> bool:
        """It has not grown by more than is tolerated."""
        return self.last <= self.meter.bound(self.first)


def trend(meter: Meter, values: Sequence[float], warm_up: float = 0.2) -> Trend:
    """Without the first part of the time, in which everything is made for the first time."""
    settled = values[int(len(values) * warm_up) :]
    third = max(1, len(settled) // 3)
    return Trend(meter, median(settled[:third]), median(settled[-third:]))


def meters(own: Own, steady: Callable[[], int], tables: Sequence[tuple[str, str]]) -> list[Meter]:
    """All of them; `steady` tells the process that runs all the time, `tables` are in Iceberg."""
    spark: Server = own.getfixturevalue("spark_server")
    return [
        *_process("driver", lambda: [psutil.Process(steady())], 1.15, 40),
        *_process("Spark's JVM", lambda: [psutil.Process(spark.pid)], 1.25, 150),
        Meter("Python workers", lambda: len(workers(spark.pid)), 1.2, 3),
        Meter("Python workers, MB", lambda: _rss(workers(spark.pid)), 1.25, 150),
        Meter("temporary files", lambda: _files(Path(tempfile.gettempdir())), 1.2, 30),
        Meter("Spark's scratch files", lambda: _files(spark.folder / "scratch"), 1.25, 60),
        *_postgresql(own),
        *_clickhouse(own),
        Meter("topics of Kafka", lambda: _topics(own), 1.0, 0),
        Meter("metadata files of Iceberg for each snapshot", lambda: _lake(own, tables), 1.1, 0.5),
    ]


def _process(
    name: str, found: Callable[[], list[psutil.Process]], factor: float, more: float
) -> Iterable[Meter]:
    def threads() -> float:
        return sum(process.num_threads() for process in found())

    def descriptors() -> float:
        return sum(process.num_fds() for process in found())

    yield Meter(f"{name}: threads", threads, 1.1, 6)
    yield Meter(f"{name}: descriptors", descriptors, 1.1, 15)
    yield Meter(f"{name}: MB", lambda: _rss(found()), factor, more)


def _rss(processes: Iterable[psutil.Process]) -> float:
    found = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found += process.memory_info().rss / MB
    return round(found, 1)


def _files(folder: Path) -> float:
    return sum(1 for _ in folder.rglob("*"))


def _postgresql(own: Own) -> Iterable[Meter]:
    import psycopg

    dsn = own.getfixturevalue("postgresql").dsn()

    def ask(sql: str) -> Callable[[], float]:
        def read() -> float:
            with psycopg.connect(dsn) as connection:
                row = connection.execute(sql.encode()).fetchone()
            return float(row[0]) if row else 0.0

        return read

    clients = "select count(*) from pg_stat_activity where backend_type = 'client backend'"
    bloat = "select (pg_total_relation_size('pg_class') + pg_total_relation_size('pg_attribute'))"
    ours = (
        "select coalesce(sum(pg_total_relation_size(oid)), 0) / 1024 from pg_class "
        "where relname like 'dataflow%' and relkind = 'r'"
    )
    yield Meter("PostgreSQL: sessions", ask(clients), 1.2, 3)
    yield Meter("PostgreSQL: pg_class rows", ask("select count(*) from pg_class"), 1.0, 12)
    yield Meter("PostgreSQL: pg_attribute rows", ask("select count(*) from pg_attribute"), 1.0, 120)
    yield Meter("PostgreSQL: pg_class and pg_attribute, KB", ask(f"{bloat} / 1024"), 1.3, 200)
    yield Meter("PostgreSQL: checkpoints, KB", ask(ours), 1.5, 300)


def _clickhouse(own: Own) -> Iterable[Meter]:
    import clickhouse_connect

    dsn = own.getfixturevalue("clickhouse").dsn()

    def ask(sql: str) -> Callable[[], float]:
        def read() -> float:
            with clickhouse_connect.get_client(dsn=dsn) as client:
                return float(client.query(sql).result_rows[0][0])

        return read

    parts = "SELECT count() FROM system.parts WHERE active AND database NOT LIKE 'system%'"
    ledger = "SELECT coalesce(sum(total_rows), 0) FROM system.tables WHERE name LIKE 'dataflow%'"
    yield Meter("ClickHouse: active parts", ask(parts), 1.5, 15)
    yield Meter("ClickHouse: rows of ledgers", ask(ledger), 1.5, 500)


def _topics(own: Own) -> float:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": own.getfixturevalue("kafka").bootstrap})
    return len(admin.list_topics(timeout=20).topics)


def _lake(own: Own, tables: Sequence[tuple[str, str]]) -> float:
    """Each commit leaves some; the maintenance job, which does not run here, takes them away."""
    catalog = own.getfixturevalue("catalog")
    files = snapshots = 0
    for place in tables:
        if catalog.table_exists(place):
            table = catalog.load_table(place)
            files += _objects(own, f"{table.location()}/metadata")
            snapshots += len(table.metadata.snapshots)
    return round(files / max(1, snapshots), 2)


def _objects(own: Own, location: str) -> int:
    from pyarrow.fs import FileSelector, S3FileSystem

    server = own.getfixturevalue("seaweedfs")
    store = S3FileSystem(
        access_key=server.access_key,
        secret_key=server.secret_key,
        endpoint_override=server.s3_endpoint,
        region=server.region,
    )
    return len(store.get_file_info(FileSelector(location.removeprefix("s3://"), recursive=True)))
