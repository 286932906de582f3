"""Servers of a process's own under the names of the suite's fixtures: for chaos and soak."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import devservers
from dataflow_assets.spark.process import Server


class Own(ExitStack):
    """What `getfixturevalue` of pytest's request gives, without pytest."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._made: dict[str, Any] = {}

    def getfixturevalue(self, argname: str) -> Any:
        """The same each time, but for what a test has of its own."""
        if argname in _FRESH:
            return _FRESH[argname](self)
        if argname not in self._made:
            self._made[argname] = _SHARED[argname](self)
        return self._made[argname]

    def addfinalizer(self, finalizer: Callable[[], object]) -> None:
        """Called at the end."""
        self.callback(finalizer)

    def server(self, kind: Callable[..., Server], name: str, **over: Any) -> Server:
        """One that runs until the end, over others that it knows."""
        return self.enter_context(kind(self._folder / name, **over))


@contextmanager
def own_servers(prefix: str) -> Iterator[tuple[Own, Path]]:
    """Servers that may be killed, and a folder for manifests; all gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        with Own(folder) as own:
            yield own, folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _name() -> str:
    return f"own_{uuid.uuid4().hex[:8]}"


def _topic(own: Own) -> Callable[[int], str]:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    def create(partitions: int) -> str:
        name = _name()
        admin = AdminClient({"bootstrap.servers": own.getfixturevalue("kafka").bootstrap})
        admin.create_topics([NewTopic(name, partitions)])[name].result(30)
        return name

    return create


def _schema(own: Own) -> str:
    import psycopg

    name = _name()
    with psycopg.connect(own.getfixturevalue("postgresql").dsn(), autocommit=True) as connection:
        connection.execute(f"create schema {name}".encode())
    return name


def _database(own: Own) -> str:
    import clickhouse_connect

    name = _name()
    dsn = own.getfixturevalue("clickhouse").dsn()
    with clickhouse_connect.get_client(dsn=dsn) as client:
        client.command(f"CREATE DATABASE {name}")
    return name


def _mysql_database(own: Own) -> str:
    name = _name()
    own.getfixturevalue("mariadb").execute(f"CREATE DATABASE {name}")
    return name


def _catalog(own: Own) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("lake", **own.getfixturevalue("seaweedfs").catalog_properties())


def _namespace(own: Own) -> str:
    name = _name()
    own.getfixturevalue("catalog").create_namespace(name)
    return name


def _nessie_catalog(own: Own) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("nessie", **own.getfixturevalue("nessie").catalog_properties())


def _nessie_namespace(own: Own) -> str:
    name = _name()
    own.getfixturevalue("nessie_catalog").create_namespace(name)
    return name


def _trino_schema(own: Own) -> str:
    from tests.connectors.trino.driver import execute

    name = _name()
    execute(own.getfixturevalue("trino"), f"CREATE SCHEMA lake.{name}")
    return name


_SHARED: dict[str, Callable[[Own], Any]] = {
    "kafka": lambda own: own.server(devservers.Kafka, "kafka"),
    "secure_kafka": lambda own: own.server(devservers.SecureKafka, "secure-kafka"),
    "kinesis": lambda own: own.server(devservers.Kinesis, "kinesis"),
    "apicurio": lambda own: own.server(devservers.Apicurio, "apicurio"),
    "postgresql": lambda own: own.server(devservers.PostgreSQL, "postgresql"),
    "mariadb": lambda own: own.server(devservers.MariaDB, "mariadb"),
    "seaweedfs": lambda own: own.server(devservers.SeaweedFS, "seaweedfs"),
    "clickhouse": lambda own: own.server(devservers.ClickHouse, "clickhouse"),
    "nessie": lambda own: own.server(
        devservers.Nessie, "nessie", store=own.getfixturevalue("seaweedfs")
    ),
    "trino": lambda own: own.server(
        devservers.Trino,
        "trino",
        store=own.getfixturevalue("seaweedfs"),
        database=own.getfixturevalue("postgresql"),
    ),
    "spark_server": lambda own: own.server(devservers.SparkConnect, "spark"),
    "topic": _topic,
    "catalog": _catalog,
    "nessie_catalog": _nessie_catalog,
}
_FRESH: dict[str, Callable[[Own], Any]] = {
    "schema": _schema,
    "database": _database,
    "mysql_database": _mysql_database,
    "namespace": _namespace,
    "nessie_namespace": _nessie_namespace,
    "trino_schema": _trino_schema,
}
