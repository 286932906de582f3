"""Error sinks under test: where error records go, and how they are read back."""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import psycopg
import pytest
from pyiceberg.catalog import Catalog

import devservers
from dataflow_assets.connectors.clickhouse import ClickhouseSink
from dataflow_assets.connectors.clickhouse import client as clients
from dataflow_assets.connectors.files import FilesSink
from dataflow_assets.connectors.iceberg import IcebergSink, NessieSink
from dataflow_assets.connectors.kafka import KafkaSink
from dataflow_assets.connectors.mysql import MysqlSink
from dataflow_assets.connectors.postgresql import PostgresqlSink
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.contracts import Sink
from dataflow_assets.spark.process import LOOPBACK
from tests.connectors.files import driver as files
from tests.connectors.kafka.topics import committed
from tests.connectors.nessie.driver import connection
from tests.connectors.trino import driver as trino

Stored = dict[str, Any]


class ErrorDriver(ABC):
    """One error sink, whose table is made by the flow."""

    kind: ClassVar[str]

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request = request

    @abstractmethod
    def declare(self) -> Sink: ...

    @abstractmethod
    def unreachable(self) -> Sink:
        """The same on a port where nobody answers."""

    @abstractmethod
    def stored(self) -> list[Stored]:
        """The error records, by their ids."""


class Beside(ErrorDriver):
    """A table in the database of the PostgreSQL target."""

    kind = "beside"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.server: devservers.PostgreSQL = request.getfixturevalue("postgresql")
        self.schema: str = request.getfixturevalue("schema")
        self.dsn = self.server.dsn()

    def declare(self) -> Sink:
        return self._sink(self.dsn)

    def unreachable(self) -> Sink:
        return self._sink("postgresql://nobody@127.0.0.1:1/none")

    def stored(self) -> list[Stored]:
        with psycopg.connect(self.dsn) as connection:
            sql = f"select error, original_message from {self.schema}.errors order by error->>'id'"
            return [
                {"error": error, "original_message": original}
                for error, original in connection.execute(sql)
            ]

    def execute(self, sql: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.format(t=f"{self.schema}.errors", s=self.schema))

    def _sink(self, dsn: str) -> Sink:
        table = f"{self.schema}.errors"
        options = {"connectionString": dsn, "table": table, "autoCreateTable": True}
        return PostgresqlSink.model_validate(options)


class Elsewhere(Beside):
    """A table in another database."""

    kind = "elsewhere"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        name = f"e_{uuid.uuid4().hex[:12]}"
        self._administer(f"create database {name}")
        request.addfinalizer(lambda: self._administer(f"drop database {name} with (force)"))
        self.dsn = self.server.dsn(name)
        self.execute("create schema {s}")

    def _administer(self, sql: str) -> None:
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            connection.execute(sql)


class Lake(ErrorDriver):
    """An Iceberg table."""

    kind = "lake"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.server: devservers.SeaweedFS = request.getfixturevalue("seaweedfs")
        self.catalog: Catalog = request.getfixturevalue("catalog")
        self.namespace: str = request.getfixturevalue("namespace")

    def declare(self) -> Sink:
        return self._sink(self.server.uri)

    def unreachable(self) -> Sink:
        return self._sink("http://127.0.0.1:1")

    def stored(self) -> list[Stored]:
        found = self.catalog.load_table((self.namespace, "errors")).scan().to_arrow().to_pylist()
        return [
            {"error": json.loads(row["error"]), "original_message": json.loads(original)}
            for row in sorted(found, key=lambda row: str(row["id"]))
            for original in [row["original_message"]]
        ]

    def _sink(self, uri: str) -> Sink:
        return IcebergSink.model_validate(
            {
                "catalogURI": uri,
                "warehouse": self.server.warehouse,
                "namespace": self.namespace,
                "table": "errors",
                "oauth2ClientID": self.server.access_key,
                "oauth2ClientSecret": self.server.secret_key,
                "s3Endpoint": self.server.s3_endpoint,
                "s3Region": "us-east-1",
                "accessKey": self.server.access_key,
                "secretAccessKey": self.server.secret_key,
                "autoCreateTable": True,
            }
        )


class Branch(Lake):
    """An Iceberg table on a branch of Nessie."""

    kind = "nessie"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request = request
        self.nessie: devservers.Nessie = request.getfixturevalue("nessie")
        self.catalog = request.getfixturevalue("nessie_catalog")
        self.namespace = request.getfixturevalue("nessie_namespace")

    def declare(self) -> Sink:
        return self._sink(self.nessie.uri)

    def _sink(self, uri: str) -> Sink:
        config = connection(self.nessie, self.namespace, "errors")
        return NessieSink.model_validate(config | {"baseURL": uri, "autoCreateTable": True})


class Merged(ErrorDriver):
    """A ClickHouse table."""

    kind = "merged"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        server: devservers.ClickHouse = request.getfixturevalue("clickhouse")
        self.dsn = server.dsn(request.getfixturevalue("database"))

    def declare(self) -> Sink:
        return self._sink(self.dsn)

    def unreachable(self) -> Sink:
        return self._sink("http://nobody@127.0.0.1:1/none")

    def stored(self) -> list[Stored]:
        query = "select error, original_message from errors final order by id"
        with clients.connect(self.dsn, "tests") as client:
            return [
                {"error": json.loads(error), "original_message": json.loads(original)}
                for error, original in clients.query_rows(client, query)
            ]

    def _sink(self, dsn: str) -> Sink:
        options = {"connectionString": dsn, "table": "errors", "autoCreateTable": True}
        return ClickhouseSink.model_validate(options)


class Topic(ErrorDriver):
    """A topic: a crash may store an entry twice, under one id."""

    kind = "topic"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.server: devservers.Kafka = request.getfixturevalue("kafka")
        self.name: str = request.getfixturevalue("topic")()

    def declare(self) -> Sink:
        return KafkaSink(brokers=(self.server.bootstrap,), topic=self.name)

    def unreachable(self) -> Sink:
        return KafkaSink(brokers=("127.0.0.1:1",), topic=self.name)

    def stored(self) -> list[Stored]:
        found = {m.key(): m.value() for m in committed(self.server.bootstrap, self.name)}
        return [
            json.loads(found[name] or b"") for name in sorted(found, key=lambda name: name or b"")
        ]


class Lines(ErrorDriver):
    """Files of a folder: a crash may store an entry twice, under one id."""

    kind = "lines"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        server: devservers.SeaweedFS = request.getfixturevalue("seaweedfs")
        store, name = files.bucket(server)
        request.addfinalizer(lambda: store.delete_dir(name))
        self.config = files.on_s3(server, f"{name}/errors")

    def declare(self) -> Sink:
        return FilesSink.model_validate(self.config)

    def unreachable(self) -> Sink:
        return FilesSink.model_validate(self.config | {"s3Endpoint": "http://127.0.0.1:1"})

    def stored(self) -> list[Stored]:
        found = files.lines(files.folder(self.config))
        by_id = {row["error"]["id"]: row for file in found for row in file}
        return [by_id[name] for name in sorted(by_id)]


class Coordinator(ErrorDriver):
    """A table behind Trino: a crash may store an entry twice, under one id."""

    kind = "trino"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.server: devservers.Trino = request.getfixturevalue("trino")
        self.schema: str = request.getfixturevalue("trino_schema")

    def declare(self) -> Sink:
        return self._sink(self.server.uri)

    def unreachable(self) -> Sink:
        return self._sink("http://127.0.0.1:1")

    def stored(self) -> list[Stored]:
        query = "select max(error), max(original_message) from errors group by id order by id"
        return [
            {"error": json.loads(error), "original_message": json.loads(original)}
            for error, original in trino.execute(self.server, query, self.schema)
        ]

    def _sink(self, uri: str) -> Sink:
        where = {"serverURL": uri, "catalog": "lake", "schema": self.schema, "table": "errors"}
        return TrinoSink.model_validate(where | {"autoCreateTable": True})


class Mysql(ErrorDriver):
    """A table of MariaDB: each record once, known by its id."""

    kind = "mysql"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.server: devservers.MariaDB = request.getfixturevalue("mariadb")
        self.database: str = request.getfixturevalue("mysql_database")

    def declare(self) -> Sink:
        return self._sink(self.server.port)

    def unreachable(self) -> Sink:
        return self._sink(1)

    def stored(self) -> list[Stored]:
        query = "SELECT error, original_message FROM errors ORDER BY id"
        return [
            {"error": json.loads(error), "original_message": json.loads(original)}
            for error, original in self.server.execute(query, database=self.database)
        ]

    def _sink(self, port: int) -> Sink:
        where = {"host": LOOPBACK, "port": port, "database": self.database, "table": "errors"}
        login = {"user": self.server.user, "password": self.server.password}
        return MysqlSink.model_validate({**where, **login, "autoCreateTable": True})


ERRORS: dict[str, type[ErrorDriver]] = {
    one.kind: one
    for one in (Beside, Branch, Coordinator, Elsewhere, Lake, Lines, Merged, Mysql, Topic)
}
