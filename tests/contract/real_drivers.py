"""Test drivers of the connectors that need a server."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from pyiceberg.catalog import Catalog

import devservers
from dataflow_assets.connectors.iceberg import IcebergSink, IcebergSource
from dataflow_assets.connectors.iceberg.table.checkpoint import property_key
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.postgresql import PostgresqlSink, PostgresqlSource
from dataflow_assets.contracts import Sink, Source, Target
from devservers import Proxy
from tests import arrivals
from tests.connectors.iceberg.driver import connection
from tests.contract.drivers import (
    OffsetSourceDriver,
    Row,
    SinkDriver,
    SourceDriver,
    encode,
    pairs,
)
from tests.contract.remote import SECRET, Remote, proxied


class Kafka(OffsetSourceDriver, Remote):
    type = "kafka"
    down = r"kafka 127\.0\.0\.1:\d+: describing the topic t_\w+: .+"
    denied = r"sasl\s+not supported yet: encrypted and authenticated connections to Kafka"
    altered = None
    dropped = r"topic t_\w+ does not exist on kafka 127\.0\.0\.1:\d+"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.server: devservers.Kafka = request.getfixturevalue("kafka")
        self.topic: str = request.getfixturevalue("topic")(2)
        self.group = f"g-{uuid.uuid4().hex[:8]}"
        self.bootstrap = self.server.bootstrap
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self.security: dict[str, Any] = {}

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        self._place(rows)
        producer = Producer({"bootstrap.servers": self.server.bootstrap, "log_level": 0})
        for index, body in enumerate([*map(encode, rows), *raw]):
            producer.produce(self.topic, body, partition=index % 2)
        assert producer.flush(30) == 0

    def recreate(self) -> None:
        self.drop()
        deadline = time.monotonic() + 20
        while self.admin.create_topics([NewTopic(self.topic, 2)])[self.topic].exception(20):
            assert time.monotonic() < deadline  # the old one is not gone yet
            time.sleep(0.1)

    def declare(self) -> Source:
        config = {"brokers": [self.bootstrap], "topic": self.topic, "consumerGroup": self.group}
        return KafkaSource.model_validate(config | self.security)

    def through(self) -> tuple[Proxy, ...]:
        server: devservers.ProxiedKafka = self.request.getfixturevalue("proxied_kafka")
        self.server, self.bootstrap = server, server.proxied
        self.admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        self.admin.create_topics([NewTopic(self.topic, 2)])[self.topic].result(20)
        return (server.proxy,)

    def busy(self, request: bytes) -> bool:
        return _api_key(request) == FETCH

    final = busy

    def wrong_credentials(self) -> None:
        self.security = {"sasl": {"username": "nobody", "password": SECRET}}

    def alter(self) -> None:
        self.admin.create_partitions([NewPartitions(self.topic, 3)])[self.topic].result(20)

    def mend(self) -> None:
        """A partition more is none too many."""

    def drop(self) -> None:
        self.admin.delete_topics([self.topic])[self.topic].result(20)


FETCH = 1  # Kafka's number of the request


def _api_key(request: bytes) -> int:
    """Of the request's first message; four bytes before it tell its size."""
    return int.from_bytes(request[4:6], "big")


class _Database(Remote):
    """A table in PostgreSQL, at either end of a flow."""

    table: ClassVar[str]
    request: pytest.FixtureRequest
    down = r"no connection to 127\.0\.0\.1:\d+: .*Connection refused"
    denied = r"no connection to 127\.0\.0\.1:\d+: .*nobody_here.*; check user"

    def connect(self) -> None:
        """Where the table is."""
        self.server: devservers.PostgreSQL = self.request.getfixturevalue("postgresql")
        self.dsn = self.seen = self.server.dsn()
        self.schema: str = self.request.getfixturevalue("schema")

    def through(self) -> tuple[Proxy, ...]:
        proxy = proxied(self.server.port, self.request.addfinalizer)
        self.seen = self.dsn.replace(f":{self.server.port}/", f":{proxy.port}/")
        return (proxy,)

    def wrong_credentials(self) -> None:
        self.seen = self.seen.replace("postgres@", f"nobody_here:{SECRET}@")

    def alter(self) -> None:
        self._execute("alter table {}.{} rename column name to renamed")

    def mend(self) -> None:
        self._execute("alter table {}.{} rename column renamed to name")

    def drop(self) -> None:
        self._execute("drop table {}.{}")

    def _execute(self, sql: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.format(self.schema, self.table).encode())


class Postgresql(SinkDriver, _Database):
    type = "postgresql"
    table = "target"
    altered = (
        r'writing to postgresql/\S+/target: column "name" of relation "target" does not exist '
        r"\(42703\); a column is missing: was the table altered\? the next run reads its columns"
    )
    dropped = (
        r"table s_\w+\.target (does not exist at postgresql/\S+; create it"
        r"|of postgresql/\S+ was dropped while the flow ran; create it again)"
        r", or set autoCreateTable: true"
    )
    in_task = "postgresql.before-commit"
    failpoints = (
        "drain.begun",
        "postgresql.begin",
        "postgresql.copy",
        "postgresql.before-commit",
        "postgresql.after-commit",
        "drain.passed",
        "postgresql.finish",
        "drain.finished",
    )

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.connect()
        columns = f"id bigint not null, name text, {arrivals.IDENTITY}"
        self._execute(f"create table {{}}.{{}} ({columns})")

    def declare(self) -> Sink:
        return PostgresqlSink(connection_string=self.seen, table=f"{self.schema}.target")

    def busy(self, request: bytes) -> bool:
        return b"name-2" in request

    def final(self, request: bytes) -> bool:
        return b"COMMIT" in request

    def rows(self) -> list[Row]:
        with psycopg.connect(self.dsn) as connection:
            sql = f"select id, name from {self.schema}.target order by 1, 2"
            return [(int(id_), str(name)) for id_, name in connection.execute(sql)]

    def arrived(self) -> list[list[Row]]:
        return [pairs(arrivals.postgresql(self.dsn, f"{self.schema}.target"))]

    def rejected(self) -> list[str]:
        with psycopg.connect(self.dsn) as connection:
            sql = f"select reason from {self.schema}.dataflow_rejected order by 1"
            return [str(reason) for (reason,) in connection.execute(sql)]

    def rebuild(self, rows: Sequence[Row]) -> None:
        """As a migration does: a copy takes the table's name."""
        self._execute("create table {0}.rebuilt (like {0}.{1} including all)")
        with psycopg.connect(self.dsn) as connection:
            sql = f"insert into {self.schema}.rebuilt values (%s, %s)".encode()
            connection.cursor().executemany(sql, rows)
        self._execute("drop table {}.{}")
        self._execute("alter table {}.rebuilt rename to {}")

    def lose(self, target: Target) -> None:
        for table in ("dataflow_checkpoint_partition", "dataflow_checkpoint"):
            self._execute(f"delete from {{}}.{table} where flow = '{target.flow}'")

    def move(self, target: Target, offset: int) -> None:
        where = f"where flow = '{target.flow}' and partition = '0'"
        moved = f"update {{}}.dataflow_checkpoint_partition set next_offset = {offset}"
        self._execute(f"{moved} {where}")


class _Lake(Remote):
    """A table of the test catalog, at either end."""

    denied = r"n_\w+\.\w+ at \S+: .+; check the credentials and what they may do"
    table: ClassVar[str]

    def _make(self, request: pytest.FixtureRequest, columns: pa.Schema) -> None:
        self.request = request
        self.server: devservers.SeaweedFS = request.getfixturevalue("seaweedfs")
        self.catalog: Catalog = request.getfixturevalue("catalog")
        self.namespace: str = request.getfixturevalue("namespace")
        self.catalog.create_table((self.namespace, self.table), columns)
        self.changes: dict[str, Any] = {}

    def _config(self) -> dict[str, Any]:
        return connection(self.server, self.namespace, self.table) | self.changes

    def through(self) -> tuple[Proxy, ...]:
        """The catalog and the object store."""
        ends = self.request.addfinalizer
        catalog, store = (proxied(self.server.ports[name], ends) for name in ("iceberg", "s3"))
        self.changes["catalogURI"] = self.server.uri.replace(
            f":{catalog.upstream}", f":{catalog.port}"
        )
        self.changes["s3Endpoint"] = f"http://127.0.0.1:{store.port}"
        return catalog, store

    def wrong_credentials(self) -> None:
        self.changes["oauth2ClientSecret"] = SECRET

    def alter(self) -> None:
        self._rename("name", "renamed")

    def mend(self) -> None:
        self._rename("renamed", "name")

    def drop(self) -> None:
        self.catalog.drop_table((self.namespace, self.table))

    def _rename(self, old: str, new: str) -> None:
        with self.catalog.load_table((self.namespace, self.table)).update_schema() as update:
            update.rename_column(old, new)


class PostgresqlTable(SourceDriver, _Database):
    """Read by its key alone: the targets have the same two columns."""

    type = "postgresql"
    table = "source"
    columns = True
    altered = r"delivers columns that the target lacks: renamed; the target has id, name: add them"
    dropped = r"table of postgresql/\S+ does not exist: it was dropped, or never made\. Create it"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.connect()
        self._execute("create table {}.{} (id bigint primary key, name text)")

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        assert not raw, "a table holds no raw messages"
        with psycopg.connect(self.dsn) as connection:
            sql = f"insert into {self.schema}.source values (%s, %s)".encode()
            connection.cursor().executemany(sql, rows)

    def declare(self) -> Source:
        return PostgresqlSource(connection_string=self.seen, table=f"{self.schema}.source")

    def busy(self, request: bytes) -> bool:
        return b"COPY" in request

    final = busy


class Iceberg(SinkDriver, _Lake):
    type = "iceberg"
    table = "target"
    partitions: ClassVar[tuple[tuple[str, str], ...]] = ()
    down = r"cannot \w[^:]+ n_\w+\.target at \S+: ConnectionError"
    altered = (
        r"stops at t, partition \d, offset \d+, for iceberg:n_\w+:target: decode: Object contains "
        r"unknown field `name`; the flow goes on once it can be stored: fix the table"
    )
    dropped = (
        r"n_\w+\.target at \S+: NoSuchTableError: .+; create the table again, or set autoCreateT"
        r"|table n_\w+\.target does not exist: create it, or set autoCreateTable: true"
    )
    in_task = "iceberg.staged"
    failpoints: ClassVar[tuple[str, ...]] = (
        "drain.begun",
        "iceberg.begin",
        "iceberg.staged",
        "drain.passed",
        "iceberg.before-commit",
        "iceberg.after-commit",
        "drain.finished",
    )

    def __init__(self, request: pytest.FixtureRequest) -> None:
        id_ = pa.field("id", pa.int64(), nullable=False)
        self._make(request, pa.schema([id_, ("name", pa.string())]))
        with self.catalog.load_table((self.namespace, self.table)).update_spec() as update:
            for name, transform in self.partitions:
                update.add_field(name, transform)

    def declare(self) -> Sink:
        return IcebergSink.model_validate(self._config())

    def busy(self, request: bytes) -> bool:
        return request.startswith(b"PUT ") and b".parquet" in request

    def final(self, request: bytes) -> bool:
        return request.startswith(b"POST ") and b"add-snapshot" in request

    def rows(self) -> list[Row]:
        found = self.catalog.load_table((self.namespace, "target")).scan().to_arrow()
        return sorted((row["id"], row["name"]) for row in found.to_pylist())

    def arrived(self) -> list[list[Row]]:
        """Of an unpartitioned table: rows of one commit are in one file for each slice."""
        return [pairs(arrivals.iceberg(self.catalog.load_table((self.namespace, "target"))))]

    def rejected(self) -> list[str]:
        found = self.catalog.load_table((self.namespace, "target_rejected")).scan().to_arrow()
        reasons = {row["id"]: str(row["reason"]) for row in found.to_pylist()}
        return sorted(reasons.values())

    def rebuild(self, rows: Sequence[Row]) -> None:
        """With the properties of the old one, as a copy of its metadata has them."""
        name = (self.namespace, self.table)
        old = self.catalog.load_table(name)
        schema, kept = old.schema().as_arrow(), old.properties
        self.catalog.drop_table(name)
        made = self.catalog.create_table(name, schema, properties=kept)
        with made.update_spec() as update:
            for column, transform in self.partitions:
                update.add_field(column, transform)
        if rows:
            found = [{"id": id_, "name": text} for id_, text in rows]
            made.append(pa.Table.from_pylist(found, made.schema().as_arrow()))

    def lose(self, target: Target) -> None:
        with self.catalog.load_table((self.namespace, self.table)).transaction() as change:
            change.remove_properties(property_key(target))

    def move(self, target: Target, offset: int) -> None:
        table = self.catalog.load_table((self.namespace, self.table))
        stored = json.loads(table.properties[property_key(target)])
        stored["positions"]["0"] = offset
        with table.transaction() as change:
            change.set_properties({property_key(target): json.dumps(stored)})


class IcebergPartitioned(Iceberg):
    variant = "partitioned"
    partitions = (("name", "truncate[5]"), ("id", "bucket[3]"))

    def arrived(self) -> list[list[Row]]:
        return []


class IcebergUpsert(Iceberg):
    """Rows merged by their key, into partitions that files are rewritten in."""

    variant = "upsert"
    upserts = True
    partitions = (("id", "bucket[2]"),)
    failpoints = (
        "drain.begun",
        "iceberg.begin",
        "iceberg.staged",
        "drain.passed",
        "iceberg.merging",
        "iceberg.rewritten",
        "iceberg.merged",
        "iceberg.before-commit",
        "iceberg.after-commit",
        "iceberg.moved",
        "drain.finished",
    )

    def arrived(self) -> list[list[Row]]:
        return []

    def declare(self) -> Sink:
        keyed = {"upsertMode": True, "conflictKey": "id"}
        return IcebergSink.model_validate(self._config() | keyed)


class IcebergTable(SourceDriver, _Lake):
    """Every seed is two snapshots of a file each, so that reads begin and end inside both."""

    type = "iceberg"
    columns = True
    table = "source"
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    down = r"cannot \w[^:]+ n_\w+\.source at \S+: ConnectionError"
    altered = (
        r"the source delivers columns that the target lacks: renamed; the target has id, name: "
        r"add them, or set unknownFields: ignore"
    )
    dropped = r"table n_\w+\.source does not exist at \S+: nothing can be read before"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._make(request, self.schema)

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        assert not raw, "a table holds no raw messages"
        table = self.catalog.load_table((self.namespace, self.table))
        for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            found = [{"id": id_, "name": name} for id_, name in half]
            table.append(pa.Table.from_pylist(found, self.schema))

    def declare(self) -> Source:
        return IcebergSource.model_validate(self._config() | {"parallelReads": 2})

    def busy(self, request: bytes) -> bool:
        return request.startswith(b"GET ") and b".parquet" in request

    final = busy
