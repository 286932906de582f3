"""Sink connectors' files against Kafka, PostgreSQL and Iceberg: rows, deletes, and taking over."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.kafka.client import KafkaBroker, Topic
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from tests import ROOT
from tests.conftest import Topics
from tests.connectors.iceberg.driver import table_rows
from tests.drained import drain_apart
from tests.formats.avro_messages import headed, record, written
from tests.formats.registry_front import front
from tests.languages.connect.files import (
    CONFLUENT,
    DEBEZIUM,
    ICEBERG,
    TABULAR,
    UNWRAP,
    Keys,
    properties_text,
    transforms,
)

ONCE = Request(patience=Patience(20, 0.05, 0.2))
Body = Any
UPSERT: Keys = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id"}
OF_DEBEZIUM: Keys = {
    "insert.mode": "upsert",
    "primary.key.mode": "record_key",
    "delete.enabled": "true",
}


@dataclass
class Connect:
    """A folder with a connector's file, a topic, and a database of its own."""

    folder: Path
    kafka: devservers.Kafka
    dsn: str
    topic: str
    engine: SparkSession

    @property
    def group(self) -> str:
        return f"connect-sink-{self.topic}"

    def write(self, base: Keys, keys: Keys | None = None) -> Flow:
        settings = psycopg.conninfo.conninfo_to_dict(self.dsn)
        url = f"jdbc:postgresql://{settings['host']}:{settings['port']}/{settings['dbname']}"
        login = {"connection.user": settings["user"], "connection.username": settings["user"]}
        own = {
            "name": f"sink-{self.topic}",
            "topics": self.topic,
            "connection.url": url,
            "table.name.format": "orders",
            "consumer.override.bootstrap.servers": self.kafka.bootstrap,
            **{key: str(text) for key, text in login.items() if key in base},
        }
        known = own if "connection.url" in base else {k: v for k, v in own.items() if "." not in k}
        known["consumer.override.bootstrap.servers"] = self.kafka.bootstrap
        file = self.folder / "sink.properties"
        file.write_text(properties_text({**base, **known, **(keys or {})}))
        loaded = load(file)
        assert [str(finding) for finding in loaded.findings] == []
        (flow,) = loaded.flows
        return flow

    def run(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SET timezone = 'UTC'")
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def rows(self, columns: str = "*") -> list[tuple[Any, ...]]:
        return self.run(f"SELECT {columns} FROM orders ORDER BY 1")

    def send(self, *messages: tuple[Body, Body], topic: str = "", partition: int = 0) -> None:
        """Keys and values: bytes as they are, None, or what becomes JSON."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        for key, value in messages:
            producer.produce(topic or self.topic, _sent(value), _sent(key), partition=partition)
        assert producer.flush(30) == 0

    def drain(self, flow: Flow) -> int:
        return sum(report.delta.rows for report in drain(flow, lambda: self.engine, ONCE))

    def commit(self, offsets: Mapping[int, int], group: str = "", topic: str = "") -> None:
        """As Connect's consumer does: without metadata."""
        settings = {"bootstrap.servers": self.kafka.bootstrap, "group.id": group or self.group}
        consumer = Consumer(settings)
        places = [TopicPartition(topic or self.topic, p, o) for p, o in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def delete_offsets(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        for deleted in admin.delete_consumer_groups([self.group]).values():
            deleted.result(30)


def _sent(body: Body) -> bytes | None:
    return body if body is None or isinstance(body, bytes) else json.dumps(body).encode()


@pytest.fixture
def connect(
    tmp_path: Path, kafka: devservers.Kafka, own_database: str, topic: Topics, engine: SparkSession
) -> Connect:
    return Connect(tmp_path, kafka, own_database, topic(2), engine)


def event(op: str, before: Body = None, after: Body = None) -> Body:
    return {"op": op, "before": before, "after": after, "source": {"table": "orders", "lsn": 7}}


@pytest.mark.parametrize("unwrapped", [False, True])
def test_events_of_debezium_keep_a_table_up_to_date(connect: Connect, unwrapped: bool) -> None:
    """By Debezium's own sink, and by Confluent's behind the transform that unwraps them."""
    connect.run("CREATE TABLE orders (id bigint PRIMARY KEY, name text)")
    keys = {**UPSERT, "delete.enabled": "true", **transforms(u={"type": UNWRAP})}
    flow = connect.write(CONFLUENT, keys) if unwrapped else connect.write(DEBEZIUM, OF_DEBEZIUM)
    one, two = {"id": 1, "name": "a"}, {"id": 2, "name": "b"}
    connect.send(
        ({"id": 1}, event("r", after=one)),
        ({"id": 2}, event("c", after=two)),
        ({"id": 1}, event("u", one, one | {"name": "c"})),
        ({"id": 2}, event("d", two)),
        ({"id": 2}, None),
        ({"id": 3}, event("c", after={"id": 3, "name": "d"})),
        ({"id": 3}, event("d", {"id": 3})),
        ({"id": 3}, None),
    )
    connect.drain(flow)
    assert connect.rows() == [(1, "c")]


def test_without_deletes_rows_of_deleted_keys_stay(connect: Connect) -> None:
    connect.run("CREATE TABLE orders (id bigint PRIMARY KEY, name text)")
    flow = connect.write(DEBEZIUM, OF_DEBEZIUM | {"delete.enabled": "false"})
    one = {"id": 1, "name": "a"}
    connect.send(
        ({"id": 1}, event("c", after=one)), ({"id": 1}, event("d", one)), ({"id": 1}, None)
    )
    connect.drain(flow)
    assert connect.rows() == [(1, "a")]


def test_values_and_keys_beside_their_schemas_are_read_by_them(connect: Connect) -> None:
    connect.run('CREATE TABLE orders (id bigint PRIMARY KEY, "placedOn" date, at timestamptz)')
    enabled = {"value.converter.schemas.enable": "true", "key.converter.schemas.enable": "true"}
    flow = connect.write(CONFLUENT, {**UPSERT, **enabled, "delete.enabled": "true"})
    schema = {
        "type": "struct",
        "fields": [
            {"field": "placedOn", "type": "int32", "name": "org.apache.kafka.connect.data.Date"},
            {"field": "at", "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"},
        ],
    }
    of_key = {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}
    value = {"schema": schema, "payload": {"placedOn": 19_297, "at": 1_667_304_001_000}}
    keys = [{"schema": of_key, "payload": {"id": number}} for number in range(3)]
    plain = {"schema": {"type": "int64"}, "payload": 9}
    connect.send(*((key, value) for key in [*keys, plain]), (keys[1], None))
    connect.drain(flow)
    assert connect.rows('id, "placedOn"::text, at::text') == [
        (number, "2022-11-01", "2022-11-01 12:00:01+00") for number in (0, 2, 9)
    ]


def test_texts_as_keys_and_places_in_the_log_as_keys(connect: Connect) -> None:
    connect.run("CREATE TABLE orders (id text PRIMARY KEY, name text)")
    string = {"key.converter": "org.apache.kafka.connect.storage.StringConverter"}
    flow = connect.write(CONFLUENT, {**UPSERT, **string, "delete.enabled": "true"})
    connect.send(*((key, {"name": "x"}) for key in (b"7", b"a b", b"7", b"gone")), (b"gone", None))
    connect.drain(flow)
    assert connect.rows() == [("7", "x"), ("a b", "x")]


def test_a_text_as_key_is_that_text_whatever_it_looks_like(connect: Connect) -> None:
    """A null message deletes the row of its own text, and not what the text is as JSON."""
    connect.run("CREATE TABLE orders (id text PRIMARY KEY, name text)")
    string = {"key.converter": "org.apache.kafka.connect.storage.StringConverter"}
    flow = connect.write(CONFLUENT, {**UPSERT, **string, "delete.enabled": "true"})
    kept, gone = (b"a", b"5"), (b'"a"', b'{"id": "5"}', b"null", b'{"schema": null, "payload": 5}')
    connect.send(*((key, {"name": "x"}) for key in (*kept, *gone)))
    connect.drain(flow)
    assert [key for key, _ in connect.rows()] == sorted(key.decode() for key in (*kept, *gone))
    connect.send(*((key, None) for key in gone))
    connect.drain(flow)
    assert connect.rows() == [("5", "x"), ("a", "x")]


def test_a_json_text_as_key_is_no_object_that_lacks_the_field(connect: Connect) -> None:
    connect.run("CREATE TABLE orders (id text PRIMARY KEY, name text)")
    flow = connect.write(CONFLUENT, {**UPSERT, "delete.enabled": "true"})
    keys = ("[a", "{b", '{"id": "c"}')
    connect.send(*((key, {"id": "of the value", "name": "x"}) for key in keys))
    connect.drain(flow)
    assert sorted(connect.rows()) == sorted((key, "x") for key in keys)


@pytest.mark.parametrize(
    ("key", "first", "keys"),
    [
        ("json.JsonConverter", {"id": "7"}, [None, b"null", b"[1]", {"x": 1}]),
        ("storage.StringConverter", b"7", [None, b"\xfe", b"\xff"]),
    ],
)
def test_a_record_without_its_key_is_rejected(
    connect: Connect, key: str, first: Body, keys: Sequence[Body]
) -> None:
    """The value's own field is not the key, and texts without a key are not one row."""
    connect.run("CREATE TABLE orders (id text PRIMARY KEY, name text)")
    own = {
        "key.converter": f"org.apache.kafka.connect.{key}",
        "dataflow.onRejected": "table",
        "dataflow.maxRejectedPercent": "100",
    }
    flow = connect.write(CONFLUENT, {**UPSERT, **own})
    connect.send((first, {"name": "a"}), *((one, {"id": "8", "name": "b"}) for one in keys))
    connect.drain(flow)
    assert connect.rows() == [("7", "a")]
    reasons = [reason for (reason,) in connect.run("SELECT reason FROM dataflow_rejected")]
    assert len(reasons) == len(keys)
    assert all("the record's key " in reason for reason in reasons)


@pytest.mark.parametrize("converter", ["json.JsonConverter", "storage.StringConverter"])
def test_a_null_message_whose_key_is_no_text_deletes_nothing(
    connect: Connect, converter: str
) -> None:
    """Several such keys would be one text."""
    connect.run("CREATE TABLE orders (id text PRIMARY KEY, name text)")
    connect.run("INSERT INTO orders VALUES ('\ufffd', 'x')")
    own = {
        "key.converter": f"org.apache.kafka.connect.{converter}",
        "delete.enabled": "true",
        "dataflow.onRejected": "table",
        "dataflow.maxRejectedPercent": "100",
    }
    flow = connect.write(CONFLUENT, {**UPSERT, **own})
    connect.send((b"\xff", None))
    connect.drain(flow)
    assert connect.rows() == [("\ufffd", "x")]
    ((reason,),) = connect.run("SELECT reason FROM dataflow_rejected")
    assert "is not UTF-8" in reason


def test_a_value_without_its_schema_is_rejected_where_the_converter_needs_one(
    connect: Connect,
) -> None:
    """Even where one of its own fields is called payload."""
    connect.run("CREATE TABLE orders (id bigint, name text)")
    own = {"value.converter.schemas.enable": "true", "dataflow.onRejected": "table"}
    flow = connect.write(CONFLUENT, {**own, "dataflow.maxRejectedPercent": "100"})
    value = {"id": 1, "name": "a"}
    bodies = [value, {"payload": value}, {"schema": None, "payload": value}]
    connect.send(*((None, body) for body in bodies))
    assert connect.drain(flow) == 1
    assert connect.rows() == [(1, "a")]


def test_places_in_the_log_are_the_key(connect: Connect) -> None:
    flow = connect.write(
        CONFLUENT, {"insert.mode": "upsert", "pk.mode": "kafka", "auto.create": "true"}
    )
    connect.send((None, {"name": "a"}), (None, {"name": "b"}))
    connect.drain(flow)
    columns = "__connect_offset, __connect_partition, __connect_topic, name"
    assert connect.rows(columns) == [(0, 0, connect.topic, "a"), (1, 0, connect.topic, "b")]


def test_names_that_are_not_quoted_match_in_any_case(connect: Connect) -> None:
    connect.run("CREATE TABLE orders (id bigint PRIMARY KEY, customername text)")
    flow = connect.write(DEBEZIUM, OF_DEBEZIUM | {"table.name.format": "Orders"})
    connect.send(({"id": 1}, {"id": 1, "customerName": "a"}))
    connect.drain(flow)
    assert connect.rows() == [(1, "a")]


def test_transforms_do_to_records_what_they_do_in_connect(connect: Connect) -> None:
    connect.run(
        "CREATE TABLE orders (id bigint, who text, a_b bigint, pin text, origin text, "
        "at_offset bigint, __op text, __source_lsn bigint, __deleted text)"
    )
    steps = transforms(
        unwrap={
            "type": UNWRAP,
            "delete.tombstone.handling.mode": "rewrite",
            "add.fields": "op,source.lsn",
        },
        choose={"type": "ReplaceField$Value", "exclude": "secret", "renames": "name:who"},
        flat={"type": "Flatten$Value", "delimiter": "_"},
        mask={"type": "MaskField$Value", "fields": "pin,gone", "replacement": "xxx"},
        cast={"type": "Cast$Value", "spec": "a_b:int64"},
        add={
            "type": "InsertField$Value",
            "offset.field": "at_offset",
            "static.field": "origin",
            "static.value": "shop",
        },
    )
    flow = connect.write(CONFLUENT, steps)
    row = {"id": 1, "name": "a", "secret": 5, "a": {"b": "12"}, "pin": 1234}
    connect.send((None, event("c", after=row)), (None, event("d", row)), (None, None))
    assert connect.drain(flow) == 2
    assert connect.rows() == [
        (1, "a", 12, "xxx", "shop", 0, "c", 7, "false"),
        (1, "a", 12, "xxx", "shop", 1, "d", 7, "true"),
    ]


@pytest.mark.parametrize(
    ("column", "schema", "sent", "stored"),
    [
        ("bigint", record(("id", "long"), name="Key"), [{"id": n} for n in range(3)], [0, 1, 2]),
        ("bigint", '"long"', [5, 6, 7], [5, 6, 7]),
        ("text", '"string"', ["5", "{a", '"6"'], ["5", "{a", '"6"']),
    ],
)
def test_values_and_keys_of_a_registrys_schemas(
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    column: str,
    schema: Body,
    sent: Sequence[Body],
    stored: Sequence[Body],
) -> None:
    connect.run(f"CREATE TABLE orders (id {column} PRIMARY KEY, name text)")
    schemas = {1: record(("name", "string")), 2: schema}
    with front("") as registry:

        def answer(request: Any, _: object) -> tuple[int, bytes]:
            number = int(request.path.split("?")[0].rpartition("/")[2])
            return 200, json.dumps({"schema": schemas[number]}).encode()

        monkeypatch.setattr(registry, "answer", answer)
        avro = "io.confluent.connect.avro.AvroConverter"
        both = {
            f"{end}.converter{key}": text
            for end in ("key", "value")
            for key, text in (("", avro), (".schema.registry.url", registry.url()))
        }
        without = {f"{end}.converter.schemas.enable": None for end in ("key", "value")}
        flow = connect.write(CONFLUENT, {**UPSERT, "delete.enabled": "true", **both, **without})
        keys = headed(2, written(schema, *sent))
        (value,) = headed(1, written(schemas[1], {"name": "a"}))
        connect.send(*((key, value) for key in keys), (keys[1], None))
        connect.drain(flow)
    first, _, last = stored
    assert connect.rows() == sorted([(first, "a"), (last, "a")])


def test_a_record_that_cannot_be_stored_goes_to_the_topic_of_dead_letters(
    connect: Connect, topic: Topics
) -> None:
    connect.run("CREATE TABLE orders (id bigint, name text)")
    dead = topic(1)
    keys: Keys = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": dead,
        "errors.deadletterqueue.topic.replication.factor": "1",
        "dataflow.maxRejectedPercent": "100",
    }
    flow = connect.write(CONFLUENT, keys)
    connect.send((None, {"id": 1, "name": "a"}), (None, {"id": "x"}), (None, {"id": 2, "new": 1}))
    assert connect.drain(flow) == 1
    assert connect.rows() == [(1, "a")]
    errors = flow.resolve().policies.rejects.sink
    assert errors is not None
    waiting = errors.error_store().pending(flow.id, None, 10)
    assert [one.body for one in waiting] == [b'{"id": "x"}', b'{"id": 2, "new": 1}']


def test_a_flow_waits_for_the_connector_and_goes_on_where_it_has_stopped(
    connect: Connect,
) -> None:
    connect.run("CREATE TABLE orders (id bigint, name text)")
    flow = connect.write(CONFLUENT)
    connect.send(*((None, {"id": n, "name": "c"}) for n in range(5)))
    connect.send(*((None, {"id": n, "name": "c"}) for n in range(5, 8)), partition=1)
    settings = {"bootstrap.servers": connect.kafka.bootstrap, "group.id": connect.group}
    running = Consumer(settings | {"client.id": "connector-consumer", "log_level": 0})
    running.subscribe([connect.topic])
    while not running.assignment():
        running.poll(0.1)
    hurried = Request(patience=Patience(0, 0.05, 0.2))
    with pytest.raises(TransientError, match=r"connector-consumer.*: the connector runs\. Stop it"):
        list(drain(flow, lambda: connect.engine, hurried))
    places = [TopicPartition(connect.topic, 0, 3), TopicPartition(connect.topic, 1, 1)]
    running.commit(offsets=places, asynchronous=False)
    running.close()
    assert connect.drain(flow) == 4
    assert [id_ for id_, _ in connect.rows()] == [3, 4, 6, 7]
    connect.send((None, {"id": 8, "name": "d"}))
    assert connect.drain(flow) == 1


KILLS = [
    "postgresql.begin:kill:1",
    "postgresql.copy:kill:1",
    "postgresql.before-commit:kill:1",
    "postgresql.after-commit:kill-driver:1",
    "postgresql.finish:kill-driver:1",
]


@pytest.mark.parametrize("kills", [KILLS[2:4], pytest.param(KILLS, marks=pytest.mark.full)])
def test_every_record_behind_the_connectors_is_stored_once_wherever_a_run_is_killed(
    connect: Connect, kills: list[str]
) -> None:
    connect.run("CREATE TABLE orders (id bigint, name text)")
    connect.write(CONFLUENT)
    for partition in range(2):
        ids = range(partition, 100, 2)
        connect.send(*((None, {"id": n, "name": "x"}) for n in ids), partition=partition)
    connect.commit({0: 20, 1: 30})
    file = str(connect.folder / "sink.properties")
    sent = 100
    for step in kills:
        assert drain_apart(file, failpoint=step) == -signal.SIGKILL, step
        connect.send(*((None, {"id": n, "name": "x"}) for n in range(sent, sent + 10)))
        sent += 10
    assert drain_apart(file) == 0
    begun = [n for n in range(100) if n >= (60 if n % 2 else 40)]
    assert [id_ for id_, _ in connect.rows()] == [*begun, *range(100, sent)]


def test_the_example_of_a_table_runs(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the topic, and the addresses of both servers, are this test's own."""
    monkeypatch.setenv("SHOP_PASSWORD", "none")
    settings = psycopg.conninfo.conninfo_to_dict(connect.dsn)
    text = (ROOT / "examples/connect/orders.json").read_text()
    for old, new in (
        ("127.0.0.1:15432/shop", f"{settings['host']}:{settings['port']}/{settings['dbname']}"),
        ('"shop"', f'"{settings["user"]}"'),
        ("shop.public.orders", connect.topic),
        ("${topic}", "orders"),
    ):
        text = text.replace(old, new)
    (connect.folder / "orders.json").write_text(text)
    worker = (ROOT / "examples/connect/worker.properties").read_text()
    worker = worker.replace("127.0.0.1:19092", connect.kafka.bootstrap)
    (connect.folder / "worker.properties").write_text(worker)
    loaded = load(connect.folder)
    assert [str(finding) for finding in loaded.findings] == []
    row = {"id": 1, "name": "a"}
    connect.send(({"id": 1}, event("c", after=row)), ({"id": 2}, event("c", after=row | {"id": 2})))
    connect.send(({"id": 2}, event("d", row | {"id": 2})), ({"id": 2}, None))
    connect.drain(loaded.flows[0])
    assert connect.rows("id::int, name") == [(1, "a")]


def test_the_example_of_a_lake_runs(
    connect: Connect,
    lake: Keys,
    catalog: Catalog,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The namespace, the topics and the servers are this test's own."""
    text = (ROOT / "examples/connect/events.properties").read_text()
    user, _, secret = str(lake["iceberg.catalog.credential"]).partition(":")
    monkeypatch.setenv("LAKE_CLIENT", user)
    monkeypatch.setenv("LAKE_SECRET", secret)
    own = {key: one for key, one in lake.items() if ".s3." in key or ".uri" in key}
    own |= {
        "iceberg.catalog.warehouse": lake["iceberg.catalog.warehouse"],
        "topics": connect.topic,
        "iceberg.control.topic": lake["iceberg.control.topic"],
        "iceberg.control.commit.interval-ms": "0",
    }
    file = connect.folder / "events.properties"
    file.write_text(text.replace("shop.events", f"{namespace}.events") + properties_text(own))
    worker = (ROOT / "examples/connect/worker.properties").read_text()
    worker = worker.replace("127.0.0.1:19092", connect.kafka.bootstrap)
    (connect.folder / "worker.properties").write_text(worker)
    connect.send((None, {"id": 7, "at": "2026-01-31T10:00:00Z"}))
    (flow,) = load(file).flows
    connect.drain(flow)
    (row,) = table_rows(catalog, namespace, "events")
    assert (row["id"], row["at_offset"]) == (7, 0)


@pytest.fixture
def lake(seaweedfs: devservers.SeaweedFS, namespace: str, topic: Topics) -> Keys:
    """The keys of a catalog and a control topic of a test's own."""
    return {
        "iceberg.tables": f"{namespace}.made,{namespace}.sent",
        "iceberg.tables.route-field": "kind",
        f"iceberg.table.{namespace}.made.route-regex": "made|paid",
        f"iceberg.table.{namespace}.sent.route-regex": "sent",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.control.topic": topic(1),
        "iceberg.control.commit.interval-ms": "0",
        "iceberg.catalog.uri": seaweedfs.uri,
        "iceberg.catalog.warehouse": seaweedfs.warehouse,
        "iceberg.catalog.credential": f"{seaweedfs.access_key}:{seaweedfs.secret_key}",
        "iceberg.catalog.s3.endpoint": seaweedfs.s3_endpoint,
        "iceberg.catalog.s3.region": seaweedfs.region,
        "iceberg.catalog.s3.access-key-id": seaweedfs.access_key,
        "iceberg.catalog.s3.secret-access-key": seaweedfs.secret_key,
        "iceberg.catalog.s3.path-style-access": "true",
    }


def test_records_go_to_the_iceberg_tables_of_their_routes(
    connect: Connect, lake: Keys, catalog: Catalog, namespace: str
) -> None:
    """Only what the connector has not read; what no route takes, and tombstones, are left out."""
    flow = connect.write(ICEBERG, lake)
    kinds: Sequence[str] = ("made", "sent", "made", "lost", "paid", "sent")
    connect.send(*((None, {"id": n, "kind": kind}) for n, kind in enumerate(kinds)), (None, None))
    connect.commit({0: 1, 1: 0})
    connect.drain(flow)
    found = {name: table_rows(catalog, namespace, name) for name in ("made", "sent")}
    ids = {name: sorted(row["id"] for row in rows) for name, rows in found.items()}
    assert ids == {"made": [2, 4], "sent": [1, 5]}


def test_a_control_topic_that_is_not_there_stops_a_flow_that_takes_over(
    connect: Connect, lake: Keys, catalog: Catalog, namespace: str
) -> None:
    """Nobody knows of files in no table then; where the connector never ran, there are none."""
    flow = connect.write(ICEBERG, {**lake, "iceberg.control.topic": f"no-{connect.topic}"})
    connect.send((None, {"id": 1, "kind": "made"}), (None, {"id": 2, "kind": "made"}))
    connect.commit({0: 1})
    with pytest.raises(PermanentError, match=r"correct iceberg\.control\.topic"):
        connect.drain(flow)
    connect.delete_offsets()
    connect.drain(flow)
    assert len(table_rows(catalog, namespace, "made")) == 2


def test_the_older_iceberg_sink_is_looked_for_before_its_offsets_are_read(
    connect: Connect,
    lake: Keys,
    catalog: Catalog,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its offsets are those of another group than its members', and it may just be stopping."""
    flow = connect.write(ICEBERG, {**lake, **TABULAR, "iceberg.control.group-id": connect.topic})
    connect.send(*((None, {"id": n, "kind": "made"}) for n in range(3)))
    connect.commit({0: 1}, connect.topic)
    members = KafkaBroker.members

    def stopping(broker: KafkaBroker, group: str, topic: Topic) -> list[str]:
        if group == connect.group:
            connect.commit({0: 2}, connect.topic)
        return members(broker, group, topic)

    monkeypatch.setattr(KafkaBroker, "members", stopping)
    connect.drain(flow)
    assert [row["id"] for row in table_rows(catalog, namespace, "made")] == [2]


def test_files_that_wait_to_be_committed_stop_a_flow_that_takes_over(
    connect: Connect, lake: Keys, catalog: Catalog, namespace: str
) -> None:
    """The workers' offsets are ahead of the tables then."""
    flow = connect.write(ICEBERG, lake)
    connect.send((None, {"id": 1, "kind": "made"}), (None, {"id": 2, "kind": "made"}))
    connect.commit({0: 1, 1: 0})
    control = str(lake["iceberg.control.topic"])
    head = b'\xc2\x01{"fields":[{"name":"data_files"}]}'
    written_files, *others = (
        head + name for name in written('"string"', connect.group, f"{connect.group}-2")
    )
    connect.send((None, b"started"), (None, written_files), topic=control)
    with pytest.raises(PermanentError, match=f"topic {control} names files of {connect.group}"):
        connect.drain(flow)
    connect.commit({0: 2}, f"{connect.group}-coord", control)
    connect.send((None, b"complete"), *((None, one) for one in others), topic=control)
    connect.drain(flow)
    assert [row["id"] for row in table_rows(catalog, namespace, "made")] == [2]
