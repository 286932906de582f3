"""The servers of one folder: started, found again, ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from dataflow_assets.spark import detached
from dataflow_assets.spark.detached import Progress
from dataflow_assets.spark.process import Server
from dataflow_assets.spark.server import SparkConnect
from devservers.clickhouse import ClickHouse
from devservers.kafka import Kafka
from devservers.postgresql import PostgreSQL
from devservers.seaweedfs import SeaweedFS
from devservers.trino import Trino


@dataclass(frozen=True)
class Servers:
    """The servers of one folder that run; None for those that do not."""

    kafka: Kafka | None = None
    postgresql: PostgreSQL | None = None
    seaweedfs: SeaweedFS | None = None
    clickhouse: ClickHouse | None = None
    spark: SparkConnect | None = None
    trino: Trino | None = None

    def running(self) -> Iterator[Server]:
        """Those that are there."""
        yield from (server for field in fields(self) if (server := getattr(self, field.name)))


def up(  # noqa: PLR0913 (a switch per server)
    folder: Path,
    *,
    kafka: bool = True,
    postgresql: bool = True,
    seaweedfs: bool = True,
    clickhouse: bool = True,
    spark: bool = False,
    trino: bool = False,
    progress: Progress = print,
) -> Servers:
    """Start what is wanted and not yet running. When one fails, the others stay up.

    Trino starts behind the others: its catalogs are those of SeaweedFS and PostgreSQL.
    """
    flags = {
        "kafka": kafka,
        "postgresql": postgresql,
        "seaweedfs": seaweedfs,
        "clickhouse": clickhouse,
        "spark": spark,
    }
    wanted = {name for name, flag in flags.items() if flag}
    servers, known = _all(folder), detached.up(folder, _all(folder), wanted, progress)
    if trino:  # over two of the others, whose ports it must know
        servers = {**servers, **known, "trino": _trino(folder, known)}
        known = detached.up(folder, servers, {"trino"}, progress)
    return _bundle(known)


def read(folder: Path) -> Servers:
    """The running servers of a folder; one that died or never was there is None."""
    return _bundle(detached.running(folder, _all(folder)))


def down(folder: Path, progress: Progress = print) -> None:
    """Stop the servers of a folder, nobody else."""
    detached.down(folder, _all(folder), progress)


def _all(folder: Path) -> detached.Known[Server]:
    servers: list[Server] = [
        Kafka(folder / "kafka", detached=True),
        PostgreSQL(folder / "postgresql", detached=True),
        SeaweedFS(folder / "seaweedfs", detached=True),
        ClickHouse(folder / "clickhouse", detached=True),
        SparkConnect(folder / "spark", detached=True),
    ]
    known = {server.name: server for server in servers}
    return {**known, "trino": _trino(folder, known)}


def _trino(folder: Path, servers: detached.Known[Server]) -> Trino:
    store, database = servers["seaweedfs"], servers["postgresql"]
    assert isinstance(store, SeaweedFS)  # noqa: S101 - each is under its name
    assert isinstance(database, PostgreSQL)  # noqa: S101 - as above
    return Trino(folder / "trino", store=store, database=database, detached=True)


def _bundle(servers: detached.Known[Server]) -> Servers:
    return Servers(**servers)  # type: ignore[arg-type]  # each is in the field of its name
