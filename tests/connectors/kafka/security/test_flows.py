"""A broker with a listener for each way to encrypt and to authenticate: flows through them."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.kafka.source.frame import FrameReader
from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession
from dataflow_assets.manifests.load import load
from dataflow_assets.secrets.tls import warn_unchecked
from devservers.secure_kafka import USERS
from tests import ROOT
from tests.connectors.kafka.security.secured import (
    WAYS,
    Config,
    body,
    expect,
    manifest,
    mine,
    run,
    send,
    texts,
    values,
)
from tests.connectors.kafka.topics import committed
from tests.languages.justone.test_reader import changed

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(240)]


QUICK = {"tls", "mtls, texts", "unchecked, expired", "plain", "scram-sha-256", "scram-sha-512, tls"}
"""Every protocol and every mechanism once; the other ways are the same settings put together."""


EVERY = [pytest.param(way, marks=() if way in QUICK else pytest.mark.full, id=way) for way in WAYS]


@pytest.mark.parametrize("way", EVERY)
def test_a_flow_reads_and_writes_each_record_once(
    broker: devservers.SecureKafka, topic: str, end: Config, engine: SparkSession, tmp_path: Path
) -> None:
    """Planner, reading, sink, checkpoint topic, error sink, lag, peek and consumer group."""
    good = [body(number) for number in range(60)]
    send(broker, topic, [*good, b"no json", b"{}"])
    flow = manifest(
        tmp_path,
        {**end, "topic": topic, "consumerGroup": topic},
        {"type": "kafka", "config": {**end, "topic": f"{topic}-to", "autoCreateTopic": True}},
        transformations=[{"type": "validate", "config": {"schema": {"required": ["id"]}}}],
        errors={"type": "kafka", "config": {**end, "topic": f"{topic}-errors"}},
        maxRejectedPercent=100,
    )
    run(flow, engine)
    expect(broker, f"{topic}-to", good)
    rejected = committed(broker.bootstrap, f"{topic}-errors")
    assert len({one.key() for one in rejected}) == len(rejected) == 2
    (branch,) = flow.branches
    checkpoint = branch.sink.peek(flow.target(branch))
    assert checkpoint is not None
    assert checkpoint.positions == {"0": 31, "1": 31}
    session = flow.source.open(flow.id)
    assert session.lag(checkpoint.positions).records == 0
    assert session.lag({"0": 0, "1": 30}).records == 32
    assert isinstance(session, KafkaSourceSession)
    assert session.peek({"0": 0, "1": 0}, 3)["1"].column("body").to_pylist()[0] == body(1)
    session.close()
    assert run(flow, engine)[-1].delta.rows == 0
    expect(broker, f"{topic}-to", good)


@pytest.mark.parametrize(
    "way", ["mtls, texts", pytest.param("scram-sha-512, tls", marks=pytest.mark.full)]
)
def test_what_is_large_is_read_in_tasks(
    broker: devservers.SecureKafka,
    topic: str,
    end: Config,
    engine: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FrameReader, "read", _never)
    wanted = [body(number) for number in range(40_000)]
    send(broker, topic, wanted)
    sink = {**end, "topic": f"{topic}-to", "autoCreateTopic": True, "compression": "lz4"}
    flow = manifest(
        tmp_path,
        {**end, "topic": topic},
        {"type": "kafka", "config": sink},
        maxRecordsPerBatch=15_000,
    )
    reports = run(flow, engine)
    assert len([one for one in reports if one.delta.rows]) > 1
    expect(broker, f"{topic}-to", wanted)


def _never(*_: object) -> None:
    raise AssertionError("Spark's reader has its options from the plan, secrets would be in it")


def test_a_table_is_made_of_a_sample_that_tasks_read(
    broker: devservers.SecureKafka,
    topic: str,
    engine: SparkSession,
    postgresql: devservers.PostgreSQL,
    schema: str,
    tmp_path: Path,
) -> None:
    send(broker, topic, [body(number) for number in range(12_000)])
    source = {"brokers": [broker.at("mtls")], "tls": mine(broker), "topic": topic}
    table = {"connectionString": postgresql.dsn(), "table": f"{schema}.t", "autoCreateTable": True}
    flow = manifest(
        tmp_path,
        source,
        {"type": "postgresql", "config": table},
        transformations=[{"type": "insertField", "config": {"fields": {"at": "here"}}}],
    )
    run(flow, engine)
    with psycopg.connect(postgresql.dsn()) as connection:
        found = connection.execute(f"SELECT id, name, at FROM {schema}.t ORDER BY id").fetchall()
    assert found == [(number, f"name-{number}", "here") for number in range(12_000)]


SEEDS = {
    "secrets-kafka": "sasl",
    "secrets-kafka-tls": "mtls",
    "kafka-sasl-ssl": "sasltls",
    "kafka-sasl-plaintext": "sasl",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_manifests_of_the_dataflow_operator_run_as_they_are(
    seed: str,
    broker: devservers.SecureKafka,
    topic: str,
    engine: SparkSession,
    postgresql: devservers.PostgreSQL,
    schema: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hosts, names, files and credentials aside."""
    send(broker, topic, [body(number) for number in range(20)])
    secrets = tmp_path / "secrets/default/kafka-credentials"
    secrets.mkdir(parents=True)
    (secrets / "username").write_text("flow")
    (secrets / "password").write_text(USERS["flow"])
    monkeypatch.setenv("DATAFLOW_SECRETS", str(tmp_path / "secrets"))
    path = tmp_path / "flow.yaml"
    path.write_text(
        _here(ROOT / f"examples/seeds/{seed}.yaml", broker, SEEDS[seed], topic, postgresql, schema)
    )
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.target_table (id bigint, name text)")
        loaded = load(path)
        assert not loaded.findings
        run(loaded.flows[0].resolve(), engine)
        found = connection.execute(f"SELECT id, name FROM {schema}.target_table ORDER BY id")
        assert found.fetchall() == [(number, f"name-{number}") for number in range(20)]


def _here(
    seed: Path,
    broker: devservers.SecureKafka,
    listener: str,
    topic: str,
    postgresql: devservers.PostgreSQL,
    schema: str,
) -> str:
    text = re.sub(
        r"(kafka\d|secure-kafka):\d+(,kafka\d:\d+)*", broker.at(listener), seed.read_text()
    )
    certificates = {"ca": broker.authority.ca, "client": broker.client.cert}
    for name, path in certificates.items():
        text = text.replace(f"/etc/kafka/{name}.crt", str(path))
    text = text.replace("/etc/kafka/client.key", str(broker.client.key))
    blocks = iter([broker.authority.ca, broker.client.cert, broker.client.key])
    text = re.sub(
        r"-----BEGIN .*\n +\.\.\.\n +-----END .*",
        lambda _: next(blocks).read_text().strip().replace("\n", "\n    "),
        text,
    )
    text = re.sub(r"input-topic|secure-topic", topic, text)
    text = text.replace("kafka-user", "flow").replace("kafka-password", USERS["flow"])
    text = re.sub(r"postgres://\S+", f'{postgresql.dsn()}"', text)
    return text.replace("target_table", f"{schema}.target_table")


def test_what_is_not_checked_is_said_loudly(
    broker: devservers.SecureKafka, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"brokers": [broker.at("tls")], "topic": topic, "tls": {"insecureSkipVerify": True}}
    warn_unchecked.cache_clear()
    with caplog.at_level(logging.WARNING):
        KafkaSource.model_validate(config).open("default/f").close()
    assert "the server's certificate is not checked" in caplog.text


def test_nothing_of_a_certificate_stays_on_the_disk(
    broker: devservers.SecureKafka, topic: str
) -> None:
    before = set(Path(tempfile.gettempdir()).glob("dataflow-assets-*"))
    config = {"brokers": [broker.at("mtls")], "topic": topic, "tls": texts(broker)}
    KafkaSource.model_validate(config).open("default/f").close()
    assert set(Path(tempfile.gettempdir()).glob("dataflow-assets-*")) == before


def test_records_that_are_lost_are_left_out_where_the_flow_goes_on(
    broker: devservers.SecureKafka,
    admin: AdminClient,
    topic: str,
    engine: SparkSession,
    tmp_path: Path,
) -> None:
    wanted = [body(number) for number in range(40)]
    send(broker, topic, wanted)
    end = {"brokers": [broker.at("mtls")], "tls": mine(broker)}
    sink = {"type": "kafka", "config": {**end, "topic": f"{topic}-to", "autoCreateTopic": True}}
    source = {**end, "topic": topic, "onDataLoss": "continue"}
    flow = manifest(tmp_path, source, sink)
    run(flow, engine)
    send(broker, topic, [body(number) for number in range(40, 80)])
    for done in admin.delete_records([TopicPartition(topic, 0, 30)]).values():
        done.result(20)
    run(flow, engine)
    left = [body(n) for n in range(80) if n % 2 or n < 40 or n >= 60]
    assert sorted(values(committed(broker.bootstrap, f"{topic}-to"))) == sorted(left)


SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def _store(broker: devservers.SecureKafka, folder: Path) -> str:
    """Certificate and key in one file, as Java's PEM store has them."""
    file = folder / "client.pem"
    file.write_text(broker.client.key.read_text() + broker.client.cert.read_text())
    return f"""\
bootstrap.servers={broker.at("mtls")}
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.location={broker.authority.ca}
ssl.keystore.type=PEM
ssl.keystore.location={file}
"""


def _scram(broker: devservers.SecureKafka, _: Path) -> str:
    """Certificates as text, and the password in a variable."""
    pem = "\\n\\\n".join(broker.authority.ca.read_text().splitlines())
    return f"""\
bootstrap.servers=SASL_SSL://{broker.at("sasltls")}
security.protocol=PLAINTEXT
consumer.security.protocol=SASL_SSL
consumer.sasl.mechanism=SCRAM-SHA-512
consumer.sasl.jaas.config={SCRAM} required username="flow" password="${{env:FLOW_PASSWORD}}";
consumer.ssl.truststore.type=PEM
consumer.ssl.truststore.certificates={pem}
"""


@pytest.mark.parametrize("written", [_store, _scram], ids=["mtls", "scram"])
def test_a_connect_workers_file_reaches_the_broker(
    broker: devservers.SecureKafka,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: Callable[[devservers.SecureKafka, Path], str],
) -> None:
    monkeypatch.setenv("FLOW_PASSWORD", USERS["flow"])
    send(broker, topic, [body(number) for number in range(20)])
    (tmp_path / "worker.properties").write_text(written(broker, tmp_path))
    columns = {"db__columns": "id", "db__json__parse": "/@id"}
    (tmp_path / "sink.properties").write_text(changed(topics=topic, **columns))
    loaded = load(tmp_path)
    assert loaded.findings == ()
    (flow,) = loaded.flows
    session = flow.resolve().source.open(flow.id)
    assert session.lag(session.start()).records == 20
    assert isinstance(session, KafkaSourceSession)
    assert session.peek({"0": 0, "1": 0}, 3)["1"].column("body").to_pylist()[0] == body(1)
    session.close()
