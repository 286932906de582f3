"""What a flow has stored in a system, as text, and back again: one class for each system.

Names of one run (a topic, a schema, ids that a server gives) are `{{names}}` in the text, so that
it can be loaded under other names.
"""

from __future__ import annotations

import base64
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest
from confluent_kafka import Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyarrow.fs import FileSelector
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import AddSnapshotUpdate, SetPropertiesUpdate, SetSnapshotRefUpdate

import devservers
from dataflow_assets.connectors.clickhouse import client as clickhouse
from dataflow_assets.connectors.files.table.commit_log import name_of
from dataflow_assets.connectors.iceberg.table.checkpoint import property_key
from dataflow_assets.connectors.kafka.sink.checkpoint_records import side_topic
from dataflow_assets.connectors.memory import Store as MemoryStore
from dataflow_assets.contracts import REPLAY, Target
from tests.connectors.files.driver import bucket
from tests.connectors.kafka.topics import committed

Config = dict[str, Any]
Row = tuple[int, str]


class Stores(ABC):
    """The target of one flow, in a place of its own."""

    type: ClassVar[str]

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request = request
        self.make()

    @abstractmethod
    def make(self) -> None:
        """The place, empty."""

    @abstractmethod
    def names(self) -> dict[str, str]:
        """What is this run's own in the stored text, by the placeholder that stands for it."""

    def hashed(self, target: Target) -> dict[str, str]:  # noqa: ARG002 - most have none
        """The names under which it keeps what is stored of a branch, where they have a hash."""
        return {}

    @abstractmethod
    def config(self) -> Config:
        """Of the sink."""

    @abstractmethod
    def rows(self) -> list[Row]:
        """All of the target, sorted."""

    @abstractmethod
    def dump(self, target: Target) -> Any:
        """Everything in the place, as JSON."""

    @abstractmethod
    def load(self, dumped: Any, target: Target) -> None:
        """The same, into a place where nothing is. Only ids of what it makes are placeholders."""


def hidden(text: str, names: Mapping[str, str]) -> str:
    """The text with placeholders for these names; the longest is replaced first."""
    for name, value in sorted(names.items(), key=lambda one: -len(one[1])):
        text = text.replace(value, f"{{{{{name}}}}}")
    return text


def shown(text: str, names: Mapping[str, str]) -> str:
    """The text with names for their placeholders."""
    for name, value in names.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


class Postgresql(Stores):
    """A schema, with the tables of the flow beside the target."""

    type = "postgresql"

    def make(self) -> None:
        server: devservers.PostgreSQL = self.request.getfixturevalue("postgresql")
        self.schema: str = self.request.getfixturevalue("schema")
        self.connection = psycopg.connect(server.dsn(), autocommit=True)
        self.request.addfinalizer(self.connection.close)
        self.connection.execute(f"SET search_path = {self.schema}".encode())
        self.dsn = server.dsn()

    def names(self) -> dict[str, str]:
        return {"schema": self.schema} | self._oid()

    def _oid(self) -> dict[str, str]:
        ((oid,),) = self.connection.execute("SELECT to_regclass('target')::oid").fetchall()
        return {"oid": str(oid)} if oid else {}

    def config(self) -> Config:
        table = f"{self.schema}.target"
        return {"connectionString": self.dsn, "table": table, "autoCreateTable": True}

    def rows(self) -> list[Row]:
        return self.connection.execute("SELECT id, name FROM target ORDER BY 1, 2").fetchall()

    def dump(self, target: Target) -> Any:  # noqa: ARG002 - all of the schema
        names = self.connection.execute(_TABLES, [self.schema]).fetchall()
        return {name: {"create": create, "rows": self._copied(name)} for name, create in names}

    def _copied(self, table: str) -> list[str]:
        with self.connection.cursor().copy(f"COPY {table} TO STDOUT".encode()) as copy:
            return b"".join(copy).decode().splitlines()

    def load(self, dumped: Any, target: Target) -> None:
        for name in sorted(dumped, key=lambda name: name != "target"):  # others name its oid
            self.connection.execute(dumped[name]["create"])
            rows = [shown(row, self._oid()) + "\n" for row in dumped[name]["rows"]]
            with self.connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
                copy.write("".join(rows))


_TABLES = """
SELECT relname, format('CREATE TABLE %%I (%%s)', relname, concat_ws(', ',
    (SELECT string_agg(concat_ws(' ', quote_ident(attname), format_type(atttypid, atttypmod),
                                 'DEFAULT ' || pg_get_expr(adbin, adrelid),
                                 CASE WHEN attnotnull THEN 'NOT NULL' END), ', ' ORDER BY attnum)
     FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
     WHERE attrelid = t.oid AND attnum > 0 AND NOT attisdropped),
    (SELECT string_agg(pg_get_constraintdef(oid), ', ') FROM pg_constraint
     WHERE conrelid = t.oid AND contype IN ('p', 'u'))))
FROM pg_class AS t WHERE relnamespace = %s::regnamespace AND relkind = 'r' ORDER BY 1
"""


class Clickhouse(Stores):
    """A database."""

    type = "clickhouse"

    def make(self) -> None:
        server: devservers.ClickHouse = self.request.getfixturevalue("clickhouse")
        self.database: str = self.request.getfixturevalue("database")
        self.dsn = server.dsn(self.database)
        self.client = clickhouse.connect(self.dsn, "tests")
        self.request.addfinalizer(self.client.close)

    def names(self) -> dict[str, str]:
        return {"database": self.database} | self._uuid()

    def _uuid(self) -> dict[str, str]:
        sql = (
            "SELECT toString(uuid) FROM system.tables "
            f"WHERE database = '{self.database}' AND name = 'target'"
        )
        return {"uuid": found[0][0] for found in [self._asked(sql)] if found}

    def _asked(self, sql: str) -> list[Any]:
        return list(self.client.query(sql).result_rows)

    def config(self) -> Config:
        return {"connectionString": self.dsn, "table": "target", "autoCreateTable": True}

    def rows(self) -> list[Row]:
        found = self._asked("SELECT id, name FROM target ORDER BY 1, 2")
        return [(row[0], row[1]) for row in found]

    def dump(self, target: Target) -> Any:
        tables = [name for (name,) in self._asked("SHOW TABLES")]
        return {name: {"create": self._created(name), "rows": self._copied(name)} for name in tables}

    def _created(self, table: str) -> str:
        ((text,),) = self._asked(f"SHOW CREATE TABLE {table}")
        return str(text)

    def _copied(self, table: str) -> list[str]:
        text = self.client.raw_query(f"SELECT * FROM {table} FORMAT TabSeparated")
        return text.decode().splitlines()

    def load(self, dumped: Any, target: Target) -> None:
        for name in sorted(dumped, key=lambda name: name != "target"):  # others name its uuid
            self.client.command(dumped[name]["create"])
            rows = [shown(row, self._uuid()) + "\n" for row in dumped[name]["rows"]]
            self.client.raw_insert(name, insert_block="".join(rows), fmt="TabSeparated")


class Kafka(Stores):
    """The topic of the target, that of its rejected records, and those of its checkpoints."""

    type = "kafka"

    def make(self) -> None:
        self.bootstrap: str = self.request.getfixturevalue("kafka").bootstrap
        self.topic: str = self.request.getfixturevalue("topic")(2)

    def names(self) -> dict[str, str]:
        names = {"target": self.topic, "target_id": topic_id(self.bootstrap, self.topic)}
        return names | {"address": self.bootstrap}

    def hashed(self, target: Target) -> dict[str, str]:
        return {"side": side_topic(target), "side_of_replay": side_topic(of_replay(target))}

    def config(self) -> Config:
        return {"brokers": [self.bootstrap], "topic": self.topic}

    def rows(self) -> list[Row]:
        found = committed(self.bootstrap, self.topic)
        rows = [json.loads(message.value() or b"") for message in found]
        return sorted((row["id"], row["name"]) for row in rows)

    def dump(self, target: Target) -> Any:
        names = [self.topic, f"{self.topic}.rejected", *self.hashed(target).values()]
        return {name: [_texts(one) for one in committed(self.bootstrap, name)] for name in names}

    def load(self, dumped: Any, target: Target) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        new = [
            NewTopic(name, 1 + max(one["partition"] for one in records))
            for name, records in dumped.items()
            if name != self.topic
        ]
        for made in admin.create_topics(new).values():
            made.result(30)
        self.request.addfinalizer(lambda: admin.delete_topics([one.topic for one in new]))
        send(self.bootstrap, [(name, one) for name, records in dumped.items() for one in records])


def topic_id(bootstrap: str, topic: str) -> str:
    """Another one for each topic that had this name."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    found = admin.describe_topics(TopicCollection([topic]), request_timeout=30)
    return str(found[topic].result().topic_id)


def send(bootstrap: str, records: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """To topics: records with `partition`, `key`, `value` and `headers`."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for topic, record in records:
        producer.produce(topic, **record)
    assert producer.flush(30) == 0


def _texts(message: Message) -> Config:
    headers = {name: value.decode() for name, value in message.headers() or []}
    key, value = message.key(), message.value()
    return {
        "partition": message.partition(),
        "key": key if key is None else key.decode(),
        "value": value if value is None else value.decode(),
        "headers": headers,
    }


def of_replay(target: Target) -> Target:
    """The branch under which a replay into this one keeps its checkpoint."""
    return replace(target, branch=f"{target.branch}{REPLAY}")


class Folder(Stores):
    """A folder of the disk, and what a sink has in it beside its files."""

    type = "files"

    def make(self) -> None:
        self.folder = Path(self.request.getfixturevalue("tmp_path"), "target")
        self.folder.mkdir()

    def names(self) -> dict[str, str]:
        return {"folder": str(self.folder)}

    def hashed(self, target: Target) -> dict[str, str]:
        return {"log": name_of(target), "log_of_replay": name_of(of_replay(target))}

    def config(self) -> Config:
        return {"path": str(self.folder)}

    def rows(self) -> list[Row]:
        found = (path.read_text().splitlines() for path in self.folder.glob("*.jsonl"))
        rows = [json.loads(line) for lines in found for line in lines]
        return sorted((row["id"], row["name"]) for row in rows)

    def dump(self, target: Target) -> Any:
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_text() for path in files}

    def load(self, dumped: Any, target: Target) -> None:
        for name, text in dumped.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


class Iceberg(Stores):
    """A table of a catalog and that of its rejected records.

    Their files are put back where they were: manifests name them by their whole paths. Tables of
    other names are made of them, with the snapshots and the properties of the old ones.
    """

    type = "iceberg"

    def make(self) -> None:
        self.server: devservers.SeaweedFS = self.request.getfixturevalue("seaweedfs")
        self.catalog: Catalog = self.request.getfixturevalue("catalog")
        self.namespace: str = self.request.getfixturevalue("namespace")
        self.files = bucket(self.server)[0]

    def names(self) -> dict[str, str]:
        found = self.catalog.list_tables(self.namespace)
        tables = {name: self.catalog.load_table((_, name)) for _, name in found}
        return {f"{name}_uuid": str(one.metadata.table_uuid) for name, one in tables.items()}

    def hashed(self, target: Target) -> dict[str, str]:
        return {"property": property_key(target), "of_replay": property_key(of_replay(target))}

    def config(self) -> Config:
        return {
            "catalogURI": self.server.uri,
            "warehouse": self.server.warehouse,
            "namespace": self.namespace,
            "table": "target",
            "oauth2ClientID": self.server.access_key,
            "oauth2ClientSecret": self.server.secret_key,
            "s3Endpoint": self.server.s3_endpoint,
            "s3Region": self.server.region,
            "accessKey": self.server.access_key,
            "secretAccessKey": self.server.secret_key,
            "autoCreateTable": True,
        }

    def rows(self) -> list[Row]:
        table = self.catalog.load_table((self.namespace, "target"))
        found = table.scan().to_arrow().to_pylist()
        return sorted((row["id"], row["name"]) for row in found)

    def dump(self, target: Target) -> Any:
        tables = self.catalog.list_tables(self.namespace)
        return {name: self._dumped(self.catalog.load_table((_, name))) for _, name in tables}

    def _dumped(self, table: Table) -> Config:
        below = FileSelector(table.location().removeprefix("s3://"), recursive=True)
        paths = [one.path for one in self.files.get_file_info(below) if one.is_file]
        return {
            "metadata": json.loads(table.metadata.model_dump_json()),
            "files": {
                path: base64.b64encode(self.files.open_input_stream(path).readall()).decode()
                for path in paths
                if not path.endswith(".json")
            },
        }

    def load(self, dumped: Any, target: Target) -> None:
        for name, one in dumped.items():
            for path, content in one["files"].items():
                with self.files.open_output_stream(path) as file:
                    file.write(base64.b64decode(content))
            self._made(name, one["metadata"])

    def _made(self, name: str, stored: Config) -> None:
        was = TableMetadataUtil.parse_obj(stored | {"table-uuid": str(uuid.uuid4())})
        made = self.catalog.create_table((self.namespace, name), was.schema(), partition_spec=was.spec())
        assert made.schema() == was.schema()
        properties = shown(json.dumps(was.properties), self.names())
        updates = [
            SetPropertiesUpdate(updates=json.loads(properties)),
            *(AddSnapshotUpdate(snapshot=one) for one in was.snapshots),
            SetSnapshotRefUpdate(
                ref_name="main", type="branch", snapshot_id=was.current_snapshot_id
            ),
        ]
        self.catalog.commit_table(made, (), tuple(updates))


class Memory(Stores):
    """A store of the in-memory connectors: its tables."""

    type = "memory-slice"
    tables = ("rows", "errors", "checkpoints", "identities")

    def make(self) -> None:
        self.store: MemoryStore = self.request.getfixturevalue("store")

    def names(self) -> dict[str, str]:
        return {"store": self.store.name}

    def config(self) -> Config:
        return {"store": self.store.name, "table": "target"}

    def rows(self) -> list[Row]:
        rows = [json.loads(row) for (row,) in self.store.query("select row from rows")]
        return sorted((row["id"], row["name"]) for row in rows)

    def dump(self, target: Target) -> Any:
        return {name: list(map(_readable, self.store.query(f"select * from {name}"))) for name in self.tables}

    def load(self, dumped: Any, target: Target) -> None:
        for name, rows in dumped.items():
            for row in rows:
                marks = ", ".join("?" * len(row))
                self.store.query(f"insert into {name} values ({marks})", *row)


def _readable(row: tuple[Any, ...]) -> list[Any]:
    return [value.decode() if isinstance(value, bytes) else value for value in row]
