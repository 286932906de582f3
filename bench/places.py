"""The servers that are measured: our own in a temporary folder, or running ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import psutil

import devservers
from dataflow_assets.spark.process import Server

Processes = list[psutil.Process]


@dataclass(frozen=True)
class Places:
    """Where everything runs, and a folder for what is prepared."""

    folder: Path
    kafka: devservers.Kafka
    postgresql: devservers.PostgreSQL
    seaweedfs: devservers.SeaweedFS
    clickhouse: devservers.ClickHouse
    spark: devservers.SparkConnect
    stack: ExitStack
    """Ends what is started later."""

    @cached_property
    def nessie(self) -> devservers.Nessie:
        """Started by the first measure that needs it."""
        server = devservers.Nessie(self.folder / "nessie", store=self.seaweedfs)
        return self.stack.enter_context(server)

    @property
    def dsn(self) -> str:
        """Of the database."""
        return self.postgresql.dsn()

    @property
    def bootstrap(self) -> str:
        """Of the broker."""
        return self.kafka.bootstrap

    def groups(self) -> Mapping[str, Processes]:
        """The processes by what they are; the workers of Spark are children of its JVM."""
        jvm = psutil.Process(self.spark.pid)
        return {
            "broker": _family(self.kafka),
            "jvm": [jvm],
            "workers": jvm.children(recursive=True),
            "driver": [psutil.Process(os.getpid())],
            "postgresql": _family(self.postgresql),
            "seaweedfs": _family(self.seaweedfs),
            "clickhouse": _family(self.clickhouse),
        }


@contextmanager
def own(folder: Path) -> Iterator[Places]:
    """Servers of our own, gone afterwards, however we end."""
    with ExitStack() as stack:
        yield Places(
            folder,
            stack.enter_context(devservers.SecureKafka(folder / "kafka")),
            stack.enter_context(devservers.PostgreSQL(folder / "postgresql")),
            stack.enter_context(devservers.SeaweedFS(folder / "seaweedfs")),
            stack.enter_context(devservers.ClickHouse(folder / "clickhouse")),
            stack.enter_context(devservers.SparkConnect(folder / "spark")),
            stack,
        )


@contextmanager
def running(servers: Path, folder: Path) -> Iterator[Places]:
    """The servers that `python -m devservers up` has started."""
    found = devservers.read(servers)
    places = (found.kafka, found.postgresql, found.seaweedfs, found.clickhouse, found.spark)
    kafka, postgresql, seaweedfs, clickhouse, spark = places
    if not (kafka and postgresql and seaweedfs and clickhouse and spark):
        raise SystemExit(f"{servers}: not all servers run; start them with make servers-up")
    with ExitStack() as stack:
        yield Places(folder, kafka, postgresql, seaweedfs, clickhouse, spark, stack)


def _family(server: Server) -> Processes:
    process = psutil.Process(server.pid)
    return [process, *process.children(recursive=True)]
