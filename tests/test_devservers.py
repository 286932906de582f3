"""Each server does what the connectors rely on, and survives what crash tests do to it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
import psycopg
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyiceberg.catalog import Catalog, load_catalog
from pyspark.sql import SparkSession

import devservers
from tests.conftest import Topics


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [value for message in consumer.consume(count, 20) if (value := message.value())]
    consumer.close()
    return values


def test_kafka_round_trip(kafka: devservers.Kafka, topic: Topics) -> None:
    name = topic()
    produce(kafka.bootstrap, name, [b"a", b"b"])
    assert consume(kafka.bootstrap, name, 2) == [b"a", b"b"]


def test_kafka_transactions(kafka: devservers.Kafka, topic: Topics) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    for value, keep in ((b"no", False), (b"yes", True)):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.commit_transaction(30) if keep else producer.abort_transaction(30)
    assert consume(kafka.bootstrap, name, 1) == [b"yes"]


def test_kafka_does_not_create_topics_by_itself(kafka: devservers.Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.list_topics("nobody-made-this", timeout=10)
    assert "nobody-made-this" not in admin.list_topics(timeout=10).topics


def test_postgresql_can_replicate_logically(postgresql: devservers.PostgreSQL, schema: str) -> None:
    with psycopg.connect(postgresql.dsn()) as connection:
        connection.execute(f"CREATE TABLE {schema}.t (i int)")
        connection.execute(f"INSERT INTO {schema}.t VALUES (1)")
        assert connection.execute(f"SELECT i FROM {schema}.t").fetchall() == [(1,)]
        assert connection.execute("SHOW wal_level").fetchone() == ("logical",)
        assert connection.execute("SHOW fsync").fetchone() == ("on",)


def test_iceberg_round_trip(catalog: Catalog, namespace: str) -> None:
    rows = pa.table({"i": [1, 2, 3]})
    catalog.create_table(f"{namespace}.t", rows.schema).append(rows)
    assert catalog.load_table(f"{namespace}.t").scan().to_arrow() == rows


def test_map_in_arrow_over_connect(spark: SparkSession) -> None:
    def double(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        import dataflow_assets  # noqa: F401 (our package is on the workers)

        for batch in batches:
            yield pa.record_batch({"i": pa.compute.multiply(batch["id"], 2)})

    rows = spark.range(3).mapInArrow(double, "i long").collect()
    assert sorted(row.i for row in rows) == [0, 2, 4]


def test_spark_reads_kafka(spark: SparkSession, kafka: devservers.Kafka, topic: Topics) -> None:
    name = topic()
    produce(kafka.bootstrap, name, [b"a", b"b"])
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap)
    rows = reader.option("subscribe", name).load().select("value").collect()
    assert sorted(row.value for row in rows) == [b"a", b"b"]


def test_spark_and_pyiceberg_share_tables(
    spark: SparkSession, seaweedfs: devservers.SeaweedFS, catalog: Catalog, namespace: str
) -> None:
    for key, value in seaweedfs.spark_conf("lake").items():
        spark.conf.set(key, value)
    spark.range(2).writeTo(f"lake.{namespace}.t").create()
    table = catalog.load_table(f"{namespace}.t").scan().to_arrow()
    assert sorted(table["id"].to_pylist()) == [0, 1]


def test_kafka_compacts_while_you_wait(kafka: devservers.Kafka, topic: Topics) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100",
    }
    name = topic(config=config)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    deadline = time.monotonic() + 30
    first = 0
    while first == 0 and time.monotonic() < deadline:  # a new segment opens with a new record only
        producer.produce(name, b"v", b"k")
        producer.flush(10)
        time.sleep(0.3)
        first = first_offset(kafka.bootstrap, name)
    assert first > 0


def first_offset(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    (message,) = consumer.consume(1, 10)
    consumer.close()
    offset = message.offset()
    assert offset is not None
    return offset


def test_standalone_cluster_uses_both_workers(tmp_path: Path) -> None:
    def where(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        time.sleep(2)  # so that one worker cannot take both tasks
        for _ in batches:
            yield pa.record_batch({"d": [str(Path.cwd())]})

    with (
        devservers.SparkCluster(tmp_path / "cluster") as cluster,
        devservers.SparkConnect(tmp_path / "connect", master=cluster.master) as server,
    ):
        spark = SparkSession.builder.remote(server.remote).create()
        rows = spark.range(0, 2, 1, 2).mapInArrow(where, "d string").collect()
        spark.stop()
    assert len({row.d for row in rows}) == 2


@pytest.mark.crash
def test_kafka_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    with devservers.Kafka(tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        produce(kafka.bootstrap, "t", [b"a"])
        ports = kafka.ports
        kafka.kill()
        kafka.start()
        assert kafka.ports == ports
        assert consume(kafka.bootstrap, "t", 1) == [b"a"]


@pytest.mark.crash
def test_postgresql_keeps_what_it_committed(tmp_path: Path) -> None:
    with devservers.PostgreSQL(tmp_path) as postgresql:
        with psycopg.connect(postgresql.dsn()) as connection:
            connection.execute("CREATE TABLE t AS SELECT 1 AS i")
        postgresql.kill()
        postgresql.start()
        with psycopg.connect(postgresql.dsn()) as connection:
            assert connection.execute("SELECT i FROM t").fetchall() == [(1,)]


@pytest.mark.crash
def test_seaweedfs_keeps_what_it_committed(tmp_path: Path) -> None:
    rows = pa.table({"i": [1, 2, 3]})
    with devservers.SeaweedFS(tmp_path) as seaweedfs:
        catalog = load_catalog("lake", **seaweedfs.catalog_properties())
        catalog.create_namespace("n")
        catalog.create_table("n.t", rows.schema).append(rows)
        seaweedfs.kill()
        seaweedfs.start()
        table = load_catalog("lake", **seaweedfs.catalog_properties()).load_table("n.t")
        assert table.scan().to_arrow() == rows
        table.append(rows)
        assert table.scan().to_arrow().num_rows == 6


@pytest.mark.crash
def test_a_paused_server_answers_after_the_pause(tmp_path: Path) -> None:
    with devservers.PostgreSQL(tmp_path) as postgresql:
        postgresql.pause()
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            psycopg.connect(postgresql.dsn(), connect_timeout=2)
        postgresql.resume()
        psycopg.connect(postgresql.dsn(), connect_timeout=10).close()


def test_up_read_and_down_meet_in_a_folder(tmp_path: Path) -> None:
    said: list[str] = []
    devservers.up(tmp_path, kafka=False, seaweedfs=False, progress=said.append)
    again = devservers.up(tmp_path, kafka=False, seaweedfs=False, progress=said.append)
    assert again.postgresql is not None
    assert len(said) == 1
    assert again.kafka is None
    pid = again.postgresql.pid
    devservers.down(tmp_path, said.append)
    assert devservers.read(tmp_path) == devservers.Servers()
    assert pid is not None
    assert not psutil.pid_exists(pid)


def test_a_second_start_finds_the_same_ports(tmp_path: Path) -> None:
    with devservers.PostgreSQL(tmp_path) as postgresql:
        first = postgresql.dsn()
    with devservers.PostgreSQL(tmp_path) as postgresql:
        assert postgresql.dsn() == first


def test_never_two_on_the_same_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = devservers.PostgreSQL(tmp_path)
    monkeypatch.setattr(second, "stop_timeout", 0)
    with (
        devservers.PostgreSQL(tmp_path) as first,
        pytest.raises(devservers.ServerError, match="another one runs on"),
    ):
        second.start()
    assert not first.running


def test_a_stranger_with_the_number_of_a_server_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        server = devservers.PostgreSQL(tmp_path)
        assert not server.attach({"pid": stranger.pid, "started": 1}, {"postgresql": 1})
        assert stranger.poll() is None
        stranger.kill()


def test_a_server_that_does_not_come_up_shows_its_log(tmp_path: Path) -> None:
    server = devservers.PostgreSQL(tmp_path, config={"wal_level": "nonsense"})
    with pytest.raises(devservers.ServerError, match=r"ended while starting(.|\n)*nonsense"):
        server.start()


@pytest.mark.crash
def test_servers_end_with_a_killed_session(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib, devservers\n"
        "print(devservers.PostgreSQL(pathlib.Path(sys.argv[1])).start().pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as session:
        assert session.stdout is not None
        pid = int(session.stdout.readline())
        session.kill()
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
