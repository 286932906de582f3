"""The systems between which whole flows run in tests: each at a place of its own per test.

A system fills in where it is (`at`), makes changes to what a source reads, and shows what stands
in a target. It knows nothing of the other end.
"""

from __future__ import annotations

import json
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import psycopg
import pyarrow as pa
from ruamel.yaml import YAML

import devservers
from dataflow_assets import registry
from dataflow_assets.connectors.memory import Store
from dataflow_assets.formats.avro_encoder import AvroEncoder
from dataflow_assets.spark.process import LOOPBACK
from tests.connectors.kafka.topics import committed

Row = dict[str, Any]
Config = dict[str, Any]


class Fixtures(Protocol):
    """What a system asks for by name: pytest's request, or what stands for it without pytest."""

    def getfixturevalue(self, argname: str) -> Any: ...

    def addfinalizer(self, finalizer: Callable[[], object]) -> None: ...


@dataclass(frozen=True)
class Change:
    """One thing that happens to the row of a key, `id`."""

    op: Literal["insert", "update", "delete"]
    row: Row


def state(changes: Iterable[Change]) -> list[Row]:
    """What stands after all of them."""
    rows: dict[int, Row] = {}
    for change in changes:
        if change.op == "delete":
            rows.pop(change.row["id"], None)
        else:
            rows[change.row["id"]] = change.row
    return list(rows.values())


class System(ABC):
    """One connector type at one place."""

    type: ClassVar[str]
    columns: ClassVar[tuple[str, ...]] = ("id", "name", "price", "ok")
    """What its rows can hold."""
    tells_changes: ClassVar[bool] = False
    """As a source: each change is a record; else only what stands is read."""
    sends_nulls: ClassVar[bool] = True
    """As a source that tells changes: a delete is a null message; False: it has no deletes."""
    upsert: ClassVar[Config | None] = None
    """As a sink: what makes it match rows by `id` and delete them; None: it appends."""

    def __init__(self, request: Fixtures) -> None:
        self.request = request

    @abstractmethod
    def at(self, role: str, config: Config) -> Config:
        """The `config` of one end here: hosts, credentials and fresh names over what is given."""

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        """Makes the changes where the source of this config reads."""
        raise NotImplementedError(self.type)

    def rows(self, config: Config) -> list[Row]:
        """What stands in the target of this config: the columns that a record can have."""
        raise NotImplementedError(self.type)

    def declared(self, config: Config) -> dict[str, str]:
        """The type of each column of the target, as the system spells it."""
        raise NotImplementedError(self.type)

    @staticmethod
    def spelled(kind: str) -> str:
        """A type of docs/types.md as the system spells it."""
        return kind


class _Memory(System):
    columns = ("id", "name")

    def at(self, role: str, config: Config) -> Config:
        self.store = Store(f"systems-{uuid.uuid4().hex[:8]}")
        self.store.create()
        self.request.addfinalizer(self.store.remove)
        return {**config, "store": self.store.name} | (
            {"topic": "t"} if role == "source" else {"table": "target"}
        )

    def rows(self, config: Config) -> list[Row]:  # noqa: ARG002 - one table
        return [json.loads(row) for (row,) in self.store.query("select row from rows")]


class MemoryOffsets(_Memory):
    type = "memory-offsets"

    def change(self, config: Config, changes: Sequence[Change]) -> None:  # noqa: ARG002 - one topic
        bodies = [json.dumps(row).encode() for row in state(changes)]
        for partition in (0, 1):
            self.store.produce("t", partition, bodies[partition::2])


class MemoryParts(_Memory):
    type = "memory-parts"

    def change(self, config: Config, changes: Sequence[Change]) -> None:  # noqa: ARG002 - one table
        rows = [("t", 0, row["id"], None, row["name"].encode()) for row in state(changes)]
        with self.store.transaction() as connection:
            connection.executemany("insert into messages values (?, ?, ?, ?, ?)", rows)


class MemorySlice(_Memory):
    type = "memory-slice"


class MemorySpan(_Memory):
    type = "memory-span"


class Kafka(System):
    type = "kafka"
    tells_changes = True
    upsert: ClassVar[Config | None] = {"upsertMode": True, "conflictKey": "id"}

    def at(self, role: str, config: Config) -> Config:
        self.server: devservers.Kafka = self.request.getfixturevalue("kafka")
        here = {
            "brokers": [self.server.bootstrap],
            "topic": self.request.getfixturevalue("topic")(2),
        }
        group = {"consumerGroup": here["topic"]} if role == "source" else {}
        return {**config, **here, **group}

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        from confluent_kafka import Producer

        # in their order and once, also on a broker that has just come back
        settings = {
            "bootstrap.servers": self.server.bootstrap,
            "log_level": 0,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,  # nothing is sent before `flush`
        }
        producer = Producer(settings)
        for change in changes:
            body = None if change.op == "delete" else _message(config, change.row)
            id_ = change.row["id"]
            producer.produce(config["topic"], body, b'{"id":%d}' % id_, partition=id_ % 2)
        assert producer.flush(30) == 0

    def send(self, config: Config, *bodies: bytes) -> None:
        """Messages as they are, of one partition."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.server.bootstrap, "log_level": 0})
        for body in bodies:
            producer.produce(config["topic"], body, b"k", partition=0)
        assert producer.flush(30) == 0

    def rows(self, config: Config) -> list[Row]:
        """The records; of a topic of states the last of each key."""
        found = [(key, json.loads(body) if body else None) for key, body in self.messages(config)]
        if not config.get("upsertMode"):
            return [row for _, row in found if row is not None]
        return [row for row in dict(found).values() if row is not None]

    def messages(self, config: Config) -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of each committed record, partition by partition."""
        found = committed(self.server.bootstrap, config["topic"])
        return [(message.key(), message.value()) for message in found]


def _message(config: Config, row: Row) -> bytes:
    """A row in the format of the topic; of Avro the fields that the schema has."""
    body = json.dumps(row).encode()
    if config.get("format") != "avro":
        return body
    return AvroEncoder(config["avroSchema"], ignore_unknown=True)(body)


class Postgresql(System):
    type = "postgresql"
    upsert: ClassVar[Config | None] = {
        "upsertMode": True,
        "conflictKey": "id",
        "deleteMode": "hard",
    }

    def at(self, role: str, config: Config) -> Config:
        self.dsn = self.request.getfixturevalue("postgresql").dsn()
        schema = self.request.getfixturevalue("schema")
        table = f"{schema}.{role}"
        return {**config, "connectionString": self.dsn, "table": table}

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        with psycopg.connect(self.dsn) as connection:
            self._create(connection, config["table"], changes[0].row)
            for change in changes:
                connection.execute(*_sql(config["table"], change))

    @staticmethod
    def _create(connection: psycopg.Connection[Any], table: str, names: Iterable[str]) -> None:
        listed = ", ".join(f"{_quoted(name)} {_POSTGRESQL.get(name, 'bigint')}" for name in names)
        connection.execute(f"create table {table} ({listed})".encode())

    def rows(self, config: Config) -> list[Row]:
        from psycopg.rows import dict_row
        from psycopg.types.string import TextLoader

        with psycopg.connect(self.dsn, row_factory=dict_row) as connection:
            for kind in ("interval", "timetz", "inet", "cidr", "int4range", "int4multirange"):
                connection.adapters.register_loader(kind, TextLoader)
            found = connection.execute(f"select * from {config['table']}").fetchall()
        return [_without(row, ("created_at", "updated_at")) for row in found]

    def declared(self, config: Config) -> dict[str, str]:
        sql = (
            "select attname, format_type(atttypid, atttypmod) || repeat('[]', attndims - 1) "
            "from pg_attribute "
            "where attrelid = %s::regclass and attnum > 0 and not attisdropped"
        )
        with psycopg.connect(self.dsn) as connection:
            return dict(connection.execute(sql, (config["table"],)).fetchall())

    @staticmethod
    def spelled(kind: str) -> str:
        zones = {
            "timestamptz": "timestamp with time zone",
            "timestamp": "timestamp without time zone",
            "time": "time without time zone",
        }
        return zones.get(kind, kind.replace(", ", ","))


class PostgresqlCdc(Postgresql):
    """A table that is followed; where no snapshot is taken, from before its first row."""

    type = "postgresql-cdc"
    tells_changes = True

    def at(self, role: str, config: Config) -> Config:
        found = super().at(role, {n: v for n, v in config.items() if n != "tombstones"})
        self.table = str(found.pop("table"))
        self.name = self.table.partition(".")[0]
        names = {"slotName": self.name, "publicationName": self.name, "tables": [self.table]}
        self.request.addfinalizer(self._remove)
        return {"snapshotMode": "never", **found, **names}

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        from psycopg import sql

        with psycopg.connect(self.dsn, autocommit=True) as connection:
            table = sql.Identifier(*self.table.split("."))
            self._create(connection, self.table, changes[0].row)
            if config["snapshotMode"] == "never":
                publish = sql.SQL("create publication {} for table {}")
                connection.execute(publish.format(sql.Identifier(self.name), table))
                slot = "select pg_create_logical_replication_slot(%s, 'pgoutput')"
                connection.execute(slot, [self.name])
            for change in changes:
                connection.execute(*_sql(self.table, change))

    def _remove(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots "
                "where slot_name = %s",
                [self.name],
            )
            connection.execute(f'drop publication if exists "{self.name}"'.encode())


_POSTGRESQL = {
    "id": "bigint primary key",
    "name": "text",
    "price": "double precision",
    "ok": "boolean",
    "updated_at": "timestamptz",
    "status": "text",
    "user": "bigint",
}


def _sql(table: str, change: Change) -> tuple[bytes, list[Any]]:
    """A statement and its values."""
    values = list(change.row.values())
    if change.op == "insert":
        return f"insert into {table} values ({', '.join(['%s'] * len(values))})".encode(), values
    if change.op == "update":
        names = [_quoted(name).replace("%", "%%") for name in change.row]
        listed = ", ".join(f"{name} = %s" for name in names)
        return f"update {table} set {listed} where id = %s".encode(), [*values, change.row["id"]]
    return f"delete from {table} where id = %s".encode(), [change.row["id"]]


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


class Clickhouse(System):
    type = "clickhouse"
    upsert: ClassVar[Config | None] = {
        "upsertMode": True,
        "conflictKey": "id",
        "deleteMode": "hard",
    }

    def at(self, role: str, config: Config) -> Config:
        from dataflow_assets.connectors.clickhouse import client

        dsn = self.request.getfixturevalue("clickhouse").dsn(
            self.request.getfixturevalue("database")
        )
        self.client = client.connect(dsn, "tests")
        self.request.addfinalizer(self.client.close)
        return {**config, "connectionString": dsn, "table": role}

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        from dataflow_assets.connectors.clickhouse.client import quote

        kinds = {"id": "Int64", "name": "String", "price": "Float64", "ok": "Bool"}
        kinds["updated_at"] = "DateTime64(6, 'UTC')"
        names = list(changes[0].row)
        listed = ", ".join(f"{quote(name)} {kinds.get(name, 'Int64')}" for name in names)
        self.client.command(
            f"CREATE TABLE {config['table']} ({listed}) ENGINE = ReplacingMergeTree ORDER BY id"
        )
        rows = [list(row.values()) for row in state(changes)]
        self.client.insert(config["table"], rows, names)

    def rows(self, config: Config) -> list[Row]:
        final = " FINAL" if config.get("upsertMode") else ""
        found = self.client.query(f"SELECT * FROM {config['table']}{final}").named_results()
        return [_without(row, ("_version", "_deleted", "created_at")) for row in found]

    def declared(self, config: Config) -> dict[str, str]:
        found = self.client.query(f"DESCRIBE TABLE {config['table']}").named_results()
        return {row["name"]: _commented(row["type"], row["comment"]) for row in found}

    @staticmethod
    def spelled(kind: str) -> str:
        return kind.replace("`", "")


def _commented(kind: str, comment: str) -> str:
    kind = re.sub(r"\n\s+", "", kind)  # of tuples
    return f"{kind} COMMENT '{comment}'" if comment else kind


class Iceberg(System):
    type = "iceberg"
    upsert: ClassVar[Config | None] = {"upsertMode": True, "conflictKey": "id"}

    def at(self, role: str, config: Config) -> Config:
        server: devservers.SeaweedFS = self.request.getfixturevalue("seaweedfs")
        self.catalog = self.request.getfixturevalue("catalog")
        namespace = self.request.getfixturevalue("namespace")
        return {
            **config,
            "catalogURI": server.uri,
            "warehouse": server.warehouse,
            "namespace": namespace,
            "table": role,
            "oauth2ClientID": server.access_key,
            "oauth2ClientSecret": server.secret_key,
            "s3Endpoint": server.s3_endpoint,
            "s3Region": server.region,
            "accessKey": server.access_key,
            "secretAccessKey": server.secret_key,
        }

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        rows = state(changes)
        kinds = {"id": pa.int64(), "name": pa.string(), "price": pa.float64(), "ok": pa.bool_()}
        kinds["updated_at"] = pa.timestamp("us", "UTC")
        schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in changes[0].row])
        place = (config["namespace"], config["table"])
        table = self.catalog.create_table(place, schema)
        for half in (rows[::2], rows[1::2]):  # two snapshots
            table.append(pa.Table.from_pylist(half, schema))

    def rows(self, config: Config) -> list[Row]:
        table = self.catalog.load_table((config["namespace"], config["table"]))
        found: list[Row] = table.scan().to_arrow().to_pylist()
        return found

    def declared(self, config: Config) -> dict[str, str]:
        table = self.catalog.load_table((config["namespace"], config["table"]))
        return {
            column.name: self.spelled(str(column.field_type)) for column in table.schema().fields
        }

    @staticmethod
    def spelled(kind: str) -> str:
        return re.sub(r"\d+: ", "", kind)  # field ids


class Nessie(Iceberg):
    type = "nessie"

    def at(self, role: str, config: Config) -> Config:
        from tests.connectors.nessie.driver import connection

        server: devservers.Nessie = self.request.getfixturevalue("nessie")
        self.catalog = self.request.getfixturevalue("nessie_catalog")
        return {
            **config,
            **connection(server, self.request.getfixturevalue("nessie_namespace"), role),
        }


class Files(System):
    type = "files"

    def at(self, role: str, config: Config) -> Config:
        from tests.connectors.files import driver

        server: devservers.SeaweedFS = self.request.getfixturevalue("seaweedfs")
        store, name = driver.bucket(server)
        self.request.addfinalizer(lambda: store.delete_dir(name))
        here = driver.on_s3(server, f"{name}/{role}")
        self.folder = driver.folder(here)
        return {**config, **here}

    def change(self, config: Config, changes: Sequence[Change]) -> None:  # noqa: ARG002 - one folder
        rows = [json.dumps(row, default=str) + "\n" for row in state(changes)]
        for name, half in (("b", rows[::2]), ("a", rows[1::2])):
            self.folder.put(f"{name}.jsonl", "".join(half).encode())

    def rows(self, config: Config) -> list[Row]:  # noqa: ARG002 - one folder
        from tests.connectors.files import driver

        return [row for file in driver.lines(self.folder) for row in file]


class KafkaConnect(System):
    """The lines of a file, which a connector of Kafka itself delivers, or a table that Debezium
    follows; a source alone."""

    type = "kafkaConnect"
    tells_changes = True
    sends_nulls = False

    def at(self, role: str, config: Config) -> Config:
        folder = Path(self.request.getfixturevalue("tmp_path"), f"connect-{uuid.uuid4().hex[:6]}")
        folder.mkdir()
        follows = "PostgresConnector" in config.get("class", "")
        self.table = PostgresqlCdc(self.request) if follows else None
        here = self._table(role, config, folder) if follows else _lines_of_a_file(folder)
        return {**config, **here, "spool": str(folder / "spool"), "tasksMax": 1, "envelope": False}

    def _table(self, role: str, config: Config, folder: Path) -> Config:
        from tests.connectors.kafka_connect.driver import plugins

        assert self.table is not None
        self.place = self.table.at(role, {"snapshotMode": "initial"})
        server: devservers.PostgreSQL = self.request.getfixturevalue("postgresql")
        connector = {
            **config["config"],
            "database.hostname": LOOPBACK,
            "database.port": server.port,
            "database.user": "postgres",
            "database.dbname": "postgres",
            "slot.name": self.place["slotName"],
            "publication.name": self.place["publicationName"],
            "table.include.list": self.place["tables"][0],
        }
        here = {"plugins": [plugins(folder, "connect-debezium")], "heap": "256m"}
        return {**here, "credentials": "{}", "config": connector}

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        if self.table is not None:
            self.table.change(self.place, changes)
            return
        assert all(change.op != "delete" for change in changes), "no record is null"
        lines = [_message(config, change.row) + b"\n" for change in changes]
        Path(config["config"]["file"]).write_bytes(b"".join(lines))


def _lines_of_a_file(folder: Path) -> Config:
    from tests.connectors.kafka_connect.driver import plugins

    connector = {"file": str(folder / "lines.jsonl"), "topic": "lines"}
    here = {"plugins": [plugins(folder)], "heap": "128m"}
    return {**here, "class": "FileStreamSourceConnector", "config": connector}


class Kinesis(System):
    """A stream of two shards; a source alone."""

    type = "kinesis"
    tells_changes = True
    sends_nulls = False

    def at(self, role: str, config: Config) -> Config:  # noqa: ARG002 - a source alone
        from tests.connectors.kinesis.driver import Stream

        self.stream = Stream(self.request.getfixturevalue("kinesis"))
        self.request.addfinalizer(self.stream.remove)
        return config | self.stream.config

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        assert all(change.op != "delete" for change in changes), "no record is null"
        self.stream.put(
            [_message(config, change.row) for change in changes],
            lambda n: str(changes[n].row["id"]),
        )


class Trino(System):
    """Tables of an Iceberg catalog."""

    type = "trino"
    upsert: ClassVar[Config | None] = {
        "upsertMode": True,
        "conflictKey": "id",
        "deleteMode": "hard",
    }

    def at(self, role: str, config: Config) -> Config:
        self.server: devservers.Trino = self.request.getfixturevalue("trino")
        self.schema: str = self.request.getfixturevalue("trino_schema")
        given = {k: v for k, v in config.items() if k not in ("keycloak", "schemaSecretRef")}
        where = {"serverURL": self.server.uri, "catalog": "lake", "schema": self.schema}
        return {**given, **where, "table": role}

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        kinds = {"id": "bigint", "name": "varchar", "price": "double", "ok": "boolean"}
        kinds["updated_at"] = "timestamp(6) with time zone"
        names = list(changes[0].row)
        listed = ", ".join(f"{_quoted(name)} {kinds.get(name, 'bigint')}" for name in names)
        self.execute(f"CREATE TABLE {config['table']} ({listed})")
        rows = [f"({', '.join(map(_trino, row.values()))})" for row in state(changes)]
        self.execute(f"INSERT INTO {config['table']} VALUES {', '.join(rows)}")

    def rows(self, config: Config) -> list[Row]:
        """By way of Python's values, as the client maps them; what is compound as JSON."""
        import trino

        kinds = self.declared(config)
        listed = ", ".join(
            f"json_format(CAST({_quoted(n)} AS json)) AS {_quoted(n)}"
            if "(" in k and k[:3] in _COMPOUND
            else _quoted(n)
            for n, k in kinds.items()
        )
        host, port = "127.0.0.1", self.server.ports["http"]
        with trino.dbapi.connect(  # type: ignore[no-untyped-call]
            host=host, port=port, user="tests", catalog="lake", schema=self.schema
        ) as connection:
            cursor = connection.cursor()
            cursor.execute(f'SELECT {listed} FROM "{config["table"]}"')
            return [dict(zip(kinds, row, strict=True)) for row in cursor.fetchall()]

    def declared(self, config: Config) -> dict[str, str]:
        found = self.execute(f"DESCRIBE {config['table']}")
        return {name: kind for name, kind, *_ in found}

    @staticmethod
    def spelled(kind: str) -> str:
        """What a catalog of Iceberg makes of a type."""
        if kind.startswith("timestamp(9)") or kind in _NOT_IN_ICEBERG:
            return "varchar"
        kind = re.sub(r"\b(tinyint|smallint)\b", "integer", kind)
        return (
            kind.replace('"', "").replace(", ", ",")
            if kind.startswith("decimal")
            else kind.replace('"', "")
        )

    def execute(self, sql: str) -> list[list[Any]]:
        from tests.connectors.trino.driver import execute

        return execute(self.server, sql, self.schema)


_COMPOUND = {"row", "arr", "map"}
_NOT_IN_ICEBERG = {"json", "time(6) with time zone"}


def _trino(value: Any) -> str:
    """A value of Python as SQL."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f} UTC'"
    if isinstance(value, float):
        return f"DOUBLE '{value}'"
    return str(value) if isinstance(value, int) else f"'{value}'"


def _without(row: Mapping[str, Any], names: Iterable[str]) -> Row:
    return {name: value for name, value in row.items() if name not in set(names)}


SYSTEMS: dict[str, type[System]] = {
    system.type: system
    for system in (
        MemoryOffsets,
        MemoryParts,
        MemorySlice,
        MemorySpan,
        Kafka,
        Postgresql,
        PostgresqlCdc,
        Clickhouse,
        Iceberg,
        Nessie,
        Files,
        KafkaConnect,
        Kinesis,
        Trino,
    )
}


def made_by(sink: System) -> Config:
    """The flow makes the sink's table itself."""
    fields = registry.sinks()[sink.type].model_fields
    return {"autoCreateTable": True} if "auto_create_table" in fields else {}


def messages(store: Store) -> tuple[str, Config]:
    """The source of a flow that reads the topic `t` of a store."""
    return "memory-offsets", {"store": store.name, "topic": "t"}


def manifest(
    folder: Path,
    source: tuple[str, Config],
    sink: tuple[str, Config],
    records: int = 100,
    **spec: Any,
) -> Path:
    """A flow between these two ends, in micro-batches of so many records of a partition."""
    ends = {
        role: {"type": kind, "config": config}
        for role, (kind, config) in (("source", source), ("sink", sink))
    }
    name = f"flow-{uuid.uuid4().hex[:8]}"
    document = {
        "apiVersion": "dataflow.dataflow.io/v1",
        "kind": "DataFlow",
        "metadata": {"name": name},
        "spec": {"maxRecordsPerBatch": records, **ends, **spec},
    }
    path = folder / f"{name}.yaml"
    YAML().dump(document, path)
    return path
