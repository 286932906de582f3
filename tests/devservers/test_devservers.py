"""Each server does what the connectors rely on, and survives what crash tests do to it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import clickhouse_connect
import psutil
import psycopg
import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyiceberg.catalog import Catalog, load_catalog
from pyspark.sql import SparkSession
from urllib3.exceptions import HTTPError

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
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.list_topics("nobody-made-this", timeout=10)
    assert "nobody-made-this" not in admin.list_topics(timeout=10).topics


def test_postgresql_can_replicate_logically(postgresql: devservers.PostgreSQL, schema: str) -> None:
    with psycopg.connect(postgresql.dsn()) as connection:
        connection.execute(f"CREATE TABLE {schema}.t (i int)")
        connection.execute(f"INSERT INTO {schema}.t VALUES (1)")
        assert connection.execute(f"SELECT i FROM {schema}.t").fetchall() == [(1,)]
        assert connection.execute("SHOW wal_level").fetchone() == ("logical",)
        assert connection.execute("SHOW fsync").fetchone() == ("on",)


NUMBERS = pa.table({"i": pa.array(range(10), pa.int64())})
DEDUPLICATED = """CREATE TABLE t (i Int64) ENGINE = MergeTree ORDER BY i
    SETTINGS non_replicated_deduplication_window = 100"""


def clickhouse_client(clickhouse: devservers.ClickHouse, **options: Any) -> Client:
    given: dict[str, Any] = {"dsn": clickhouse.dsn(), "autogenerate_session_id": False}
    return clickhouse_connect.get_client(**given | options)


def rows_in(client: Client) -> int:
    return int(client.query("SELECT count() FROM t").result_rows[0][0])


def insert_once(client: Client, token: str) -> None:
    client.insert_arrow("t", NUMBERS, settings={"insert_deduplication_token": token})


@pytest.mark.parametrize("compression", ["lz4", "zstd", "gzip", False])
def test_clickhouse_round_trip(
    clickhouse: devservers.ClickHouse, database: str, compression: str | bool
) -> None:
    with clickhouse_client(clickhouse, database=database, compress=compression) as client:
        client.command("CREATE TABLE t (i Int64, t String) ENGINE = MergeTree ORDER BY i")
        rows = pa.table({"i": pa.array([1, 2], pa.int64()), "t": ["a", "it's\n"]})
        client.insert_arrow("t", rows)
        client.insert("t", [[3, "c"]])
        client.command("INSERT INTO t VALUES (4, 'd')")
        found = client.query("SELECT t FROM t WHERE i < {most:Int8} ORDER BY i", {"most": 9})
        assert found.result_columns == [["a", "it's\n", "c", "d"]]
        assert client.query_arrow("SELECT * FROM t ORDER BY i").num_rows == 4


def test_clickhouse_binds_any_text(clickhouse: devservers.ClickHouse) -> None:
    with clickhouse_client(clickhouse) as client:
        for text in ("", "it's", "a\tb\n\\n\\", "{i:Int8}", "ü€😀", "long" * 10_000):
            assert client.query("SELECT {p:String}", {"p": text}).first_row == (text,)


def test_clickhouse_settings_are_the_request_s_own(clickhouse: devservers.ClickHouse) -> None:
    with clickhouse_client(clickhouse) as client:
        query = "SELECT getSetting('max_threads')"
        assert client.query(query, settings={"max_threads": 1}).first_row == (1,)
        assert client.query(query, settings={"max_threads": 3}).first_row == (3,)
        with pytest.raises(DatabaseError, match="UNKNOWN_SETTING"):
            client.raw_query(query, settings={"no_such_setting": 1})


@pytest.mark.parametrize(
    ("query", "code"),
    [("SELECT 1 FROM nowhere", 60), ("SELEC 1", 62), ("SELECT throwIf(1)", 395)],
)
def test_clickhouse_errors_carry_their_code(
    clickhouse: devservers.ClickHouse, query: str, code: int
) -> None:
    with clickhouse_client(clickhouse) as client:
        with pytest.raises(DatabaseError) as caught:
            client.query(query)
        assert caught.value.code == code


def test_clickhouse_refuses_strangers(clickhouse: devservers.ClickHouse) -> None:
    for stranger in ({"password": "wrong"}, {"username": "nobody"}):
        given: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": clickhouse.port,
            "username": clickhouse.user,
        }
        with pytest.raises(DatabaseError) as caught:
            clickhouse_connect.get_client(**{**given, "password": clickhouse.password, **stranger})
        assert caught.value.code == 516


def test_clickhouse_answers_while_it_streams(clickhouse: devservers.ClickHouse) -> None:
    """Nor does a query whose reader went away run on."""
    endless = "SELECT number FROM numbers(1000000000000)"
    with clickhouse_client(clickhouse) as first, clickhouse_client(clickhouse) as second:
        stream = raw_stream(first, endless)
        assert pa.ipc.open_stream(stream).read_next_batch().num_rows > 0
        assert second.query("SELECT 1").first_row == (1,)
        assert running(second, endless)
        stream.close()
        until(lambda: not running(second, endless))


def until(come_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not come_true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def running(client: Client, query: str) -> int:
    like = f"SELECT count() FROM system.processes WHERE startsWith(query, '{query}')"
    return int(client.query(like).result_rows[0][0])


def raw_stream(client: Client, query: str) -> Any:
    """The answer as it comes, an Arrow stream; the client's own annotation knows less of it."""
    return client.raw_stream(query, fmt="ArrowStream")


def test_an_answer_of_clickhouse_that_fails_on_its_way_is_cut_off(
    clickhouse: devservers.ClickHouse,
) -> None:
    late = "SELECT throwIf(number = 3000000) FROM numbers(10000000)"
    with clickhouse_client(clickhouse) as client:
        stream = raw_stream(client, late)
        with pytest.raises(HTTPError):
            deque(iter(lambda: stream.read(1 << 20), b""), maxlen=0)


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


@pytest.mark.full
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


@pytest.mark.full  # a flow goes on over it in tests/e2e/test_outages.py
@pytest.mark.crash
def test_kafka_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    with devservers.Kafka(tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        produce(kafka.bootstrap, "t", [b"a"])
        ports = kafka.ports
        kafka.kill()
        kafka.start()
        assert kafka.ports == ports
        assert consume(kafka.bootstrap, "t", 1) == [b"a"]


@pytest.mark.full  # so it does over this one
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
def test_mariadb_keeps_what_it_committed_and_its_log_has_rows(tmp_path: Path) -> None:
    with devservers.MariaDB(tmp_path / "mariadb") as server:
        server.execute("CREATE TABLE t (i INT)", "INSERT INTO t VALUES (1)", database="dataflow")
        server.kill()
        server.start()
        assert server.execute("SELECT i FROM t", database="dataflow") == [(1,)]
        durable = "SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@binlog_format"
        assert server.execute(durable) == [(1, 1, "ROW")]


@pytest.mark.crash
def test_clickhouse_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    """The tokens too: an insert repeated after a crash is stored once."""
    with devservers.ClickHouse(tmp_path) as clickhouse:
        with clickhouse_client(clickhouse) as client:
            client.command(DEDUPLICATED)
            insert_once(client, "first")
            insert_once(client, "first")
            insert_once(client, "second")
            assert rows_in(client) == 20
        clickhouse.kill()
        clickhouse.start()
        with clickhouse_client(clickhouse) as client:
            assert rows_in(client) == 20
            insert_once(client, "second")
            assert rows_in(client) == 20
            insert_once(client, "third")
            assert rows_in(client) == 30


@pytest.mark.full  # the test above has the crash, tests of the connector have the two
@pytest.mark.crash
def test_clickhouse_takes_inserts_of_two_processes_at_once(tmp_path: Path) -> None:
    """Killed in between, it has every insert it acknowledged, whole."""
    with devservers.ClickHouse(tmp_path) as clickhouse:
        with clickhouse_client(clickhouse) as client:
            client.command(DEDUPLICATED)
        with ThreadPoolExecutor() as pool:
            acknowledged = [pool.submit(inserts, clickhouse.dsn(), name) for name in ("a", "b")]
            with clickhouse_client(clickhouse) as client:
                until(lambda: rows_in(client) > 500)
            clickhouse.kill()
        done = sum(each.result() for each in acknowledged)
        clickhouse.start()
        with clickhouse_client(clickhouse) as client:
            stored = rows_in(client)
    assert done > 0
    assert stored % 10 == 0
    assert done <= stored // 10 <= done + 2  # the last one of each may have gone unanswered


def inserts(dsn: str, name: str) -> int:
    """In a process of its own, insert after insert; how many were acknowledged."""
    code = (
        "import sys, clickhouse_connect, pyarrow as pa\n"
        "client = clickhouse_connect.get_client(dsn=sys.argv[1], autogenerate_session_id=False)\n"
        "rows = pa.table({'i': pa.array(range(10), pa.int64())})\n"
        "for number in range(100_000):\n"
        "    token = {'insert_deduplication_token': f'{sys.argv[2]}-{number}'}\n"
        "    client.insert_arrow('t', rows, settings=token)\n"
        "    print(number, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, dsn, name], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0  # it ended with the server
    return len(done.stdout.splitlines())


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
    devservers.up(tmp_path, kafka=False, seaweedfs=False, clickhouse=False, progress=said.append)
    again = devservers.up(
        tmp_path, kafka=False, seaweedfs=False, clickhouse=False, progress=said.append
    )
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
