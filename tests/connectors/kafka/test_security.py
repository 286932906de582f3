"""A broker with a listener for each way to encrypt and to authenticate: flows and refusals."""

from __future__ import annotations

import json
import logging
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, untyped
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.kafka import KafkaSink, KafkaSource, warm_clients
from dataflow_assets.connectors.kafka.cluster import Cluster, security
from dataflow_assets.connectors.kafka.consumers import Consumers
from dataflow_assets.connectors.kafka.sink import checkpoint
from dataflow_assets.connectors.kafka.sink.checkpoint import CheckpointTopic
from dataflow_assets.connectors.kafka.source import confirm, small_spans
from dataflow_assets.connectors.kafka.source.frame import FrameReader
from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession
from dataflow_assets.contracts import Limit, OffsetSlice, Rejects, Run, Target
from dataflow_assets.contracts.reading import Asked
from dataflow_assets.errors import DataflowError, PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Report, Request
from dataflow_assets.secrets.tls import warn_unchecked
from devservers.certificates import EXPIRED
from devservers.secure_kafka import USERS
from tests import ROOT
from tests.connectors.kafka.topics import committed
from tests.languages.justone.test_reader import changed

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(240)]

SOON = 6.0  # seconds within which a refusal is known; a question waits for eight
Config = dict[str, Any]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[devservers.SecureKafka]:
    with devservers.SecureKafka(tmp_path_factory.mktemp("secure") / "kafka") as server:
        yield server


@pytest.fixture(scope="module")
def admin(broker: devservers.SecureKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


@pytest.fixture
def topic(admin: AdminClient, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.nodeid))}"
    admin.create_topics([NewTopic(name, 2)])[name].result(20)
    return name


def ca(broker: devservers.SecureKafka) -> Config:
    return {"caFile": str(broker.authority.ca)}


def mine(broker: devservers.SecureKafka) -> Config:
    return ca(broker) | {"certFile": str(broker.client.cert), "keyFile": str(broker.client.key)}


def texts(broker: devservers.SecureKafka) -> Config:
    """The same as PEM text, with something around it as some tools write it."""
    return {key: f"# {key}\n{Path(path).read_text()}\n" for key, path in mine(broker).items()}


def sasl(mechanism: str, user: str = "flow", password: str | None = None) -> Config:
    secret = USERS[user] if password is None else password
    return {"sasl": {"mechanism": mechanism, "username": user, "password": secret}}


Way = tuple[str, Callable[[devservers.SecureKafka], Config]]
"""A listener, and what a manifest says to use it."""
WAYS: dict[str, Way] = {
    "tls": ("tls", lambda broker: {"securityProtocol": "ssl", "tls": ca(broker)}),
    "mtls, files": ("mtls", lambda broker: {"tls": mine(broker)}),
    "mtls, texts": ("mtls", lambda broker: {"tls": texts(broker)}),
    "unchecked": ("tls", lambda _: {"tls": {"insecureSkipVerify": True}}),
    "unchecked, expired": ("expired", lambda _: {"tls": {"insecureSkipVerify": True}}),
    "unchecked, elsewhere": ("elsewhere", lambda _: {"tls": {"insecureSkipVerify": True}}),
    "plain": ("sasl", lambda _: sasl("plain")),
    "scram-sha-256": ("sasl", lambda _: sasl("scram-sha-256")),
    "scram-sha-512": ("sasl", lambda _: sasl("SCRAM-SHA-512")),
    "plain, tls": ("sasltls", lambda broker: sasl("plain") | {"tls": ca(broker)}),
    "scram-sha-256, tls": ("sasltls", lambda broker: sasl("scram-sha-256") | {"tls": ca(broker)}),
    "scram-sha-512, tls": (
        "sasltls",
        lambda broker: {"securityProtocol": "SASL_SSL", "tls": ca(broker)} | sasl("scram-sha-512"),
    ),
}


QUICK = {"tls", "mtls, texts", "unchecked, expired", "plain", "scram-sha-256", "scram-sha-512, tls"}
"""Every protocol and every mechanism once; the other ways are the same settings put together."""
EVERY = [pytest.param(way, marks=() if way in QUICK else pytest.mark.full, id=way) for way in WAYS]


@pytest.fixture
def end(broker: devservers.SecureKafka, way: str) -> Config:
    listener, config = WAYS[way]
    return {"brokers": [broker.at(listener)], **config(broker)}


def send(broker: devservers.SecureKafka, topic: str, bodies: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 20})
    for number, body in enumerate(bodies):
        producer.produce(topic, body, b"k%d" % (number % 7), partition=number % 2)
        producer.poll(0)
    assert producer.flush(30) == 0


def body(number: int) -> bytes:
    return b'{"id":%d,"name":"name-%d"}' % (number, number)


def manifest(folder: Path, source: Config, sink: Config, **spec: Any) -> Flow:
    """A flow as a user declares it."""
    declared = {
        "apiVersion": "dataflow.dataflow.io/v1",
        "kind": "DataFlow",
        "metadata": {"name": "secured"},
        "spec": {
            "source": {"type": "kafka", "config": {"startingOffsets": "earliest", **source}},
            "sink": sink,
            **spec,
        },
    }
    path = folder / "flow.yaml"
    path.write_text(json.dumps(declared))
    loaded = load(path)
    assert not loaded.findings
    (flow,) = loaded.flows
    return flow.resolve()


def run(flow: Flow, engine: SparkSession) -> list[Report]:
    request = Request(run=Run(), patience=Patience(20, 0.01, 0.05))
    return list(drain(flow, lambda: engine, request))


def expect(broker: devservers.SecureKafka, topic: str, wanted: list[bytes]) -> None:
    """These values, in their order within each partition of the source, each once."""
    found = committed(broker.bootstrap, topic)
    assert sorted(values(found)) == sorted(wanted)
    keys = {value: b"k%d" % (number % 7) for number, value in enumerate(wanted)}
    assert {one.value(): one.key() for one in found} == keys
    for parity in (0, 1):
        mine = {value: None for value in wanted if json.loads(value)["id"] % 2 == parity}
        for partition in {one.partition() for one in found}:
            there = {one.value() or b"": None for one in found if one.partition() == partition}
            assert [v for v in mine if v in there] == [v for v in there if v in mine]


def values(found: list[Message]) -> list[bytes]:
    return [one.value() or b"" for one in found]


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


# Refusals


def _issued(broker: devservers.SecureKafka, what: str) -> Config:
    authority = broker.foreign if what == "foreign" else broker.authority
    days = EXPIRED if what == "expired" else 30
    found = authority.issue("flow", days=days)
    return ca(broker) | {"certFile": str(found.cert), "keyFile": str(found.key)}


PASSWORD = "wrong-s3cret-pw"
DENIED = r"the broker refuses this client: .*; check sasl\.username, sasl\.password"
REFUSALS: dict[str, tuple[str, Callable[[devservers.SecureKafka], Config], str]] = {
    "wrong password, plain": ("sasl", lambda _: sasl("plain", "flow", PASSWORD), DENIED),
    "password with a line break": (
        "sasl",
        lambda _: sasl("plain", "flow", USERS["flow"] + "\n"),
        r"sasl\.mechanism; sasl\.password has a space or a line break around it",
    ),
    "wrong password, scram-sha-256": (
        "sasl",
        lambda _: sasl("scram-sha-256", "flow", PASSWORD),
        DENIED,
    ),
    "wrong password, scram-sha-512, tls": (
        "sasltls",
        lambda broker: sasl("scram-sha-512", "flow", PASSWORD) | {"tls": ca(broker)},
        DENIED,
    ),
    "no sasl there": ("kafka", lambda _: sasl("plain"), DENIED),
    "wrong CA": (
        "tls",
        lambda broker: {"tls": {"caFile": str(broker.foreign.ca)}},
        r"another CA than that of tls\.caFile has signed its certificate",
    ),
    "no CA": ("tls", lambda _: {"tls": {}}, r"no CA that this machine trusts has signed"),
    "wrong CA, unchecked": (
        "tls",
        lambda broker: {"tls": {"caFile": str(broker.foreign.ca), "insecureSkipVerify": True}},
        r"another CA than that of tls\.caFile has signed its certificate",
    ),
    "expired broker": (
        "expired",
        lambda broker: {"tls": ca(broker)},
        r"broker 127\.0\.0\.1:\d+: its certificate has expired; it must be renewed on the server",
    ),
    "wrong host": (
        "elsewhere",
        lambda broker: {"tls": ca(broker)},
        r"its certificate is not for 127\.0\.0\.1; use a name of its certificate in brokers",
    ),
    "no client certificate": (
        "mtls",
        lambda broker: {"tls": ca(broker)},
        r"it asks for a client's certificate; set tls\.certFile and tls\.keyFile",
    ),
    "foreign client certificate": (
        "mtls",
        lambda broker: {"tls": _issued(broker, "foreign")},
        r"it refuses the certificate of tls\.certFile",
    ),
    "expired client certificate": (
        "mtls",
        lambda broker: {"tls": _issued(broker, "expired")},
        r"it refuses the certificate of tls\.certFile.*expired",
    ),
    "no rights": (
        "sasl",
        lambda _: sasl("scram-sha-512", "stranger"),
        r"Topic authorization failed; grant this client Describe on the topic",
    ),
}


@pytest.fixture
def refused(broker: devservers.SecureKafka, refusal: str, topic: str) -> tuple[Config, str]:
    listener, config, sentence = REFUSALS[refusal]
    address = broker.bootstrap if listener == "kafka" else broker.at(listener)
    return {"brokers": [address], "topic": topic, **config(broker)}, sentence


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_is_one_sentence_at_once(refused: tuple[Config, str]) -> None:
    config, sentence = refused
    error = _raised(lambda: KafkaSource.model_validate(config).open("default/f"))
    assert isinstance(error, PermanentError), error
    _is_clean(error, sentence)


def test_a_client_that_was_refused_does_not_stay(
    broker: devservers.SecureKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would log in again and again, until the brokers lock the account."""
    monkeypatch.setattr(warm_clients, "LOOK_SECONDS", 0.0)
    address, target = broker.at("sasl"), Target("default/f", "kafka:t", "h", "src")
    clusters = [
        Cluster(address, security("SASL_PLAINTEXT", None, sasl("PLAIN", "flow", password)["sasl"]))
        for password in (PASSWORD, None)
    ]
    for cluster in clusters:
        confirm.refusals(cluster, {("t", "id")})
        with suppress(PermanentError):
            CheckpointTopic.of(cluster, target).look()
    for warm in (confirm._brokers, checkpoint._kept.connections):
        kept = [one for _, one, _ in warm._kept if one in clusters]  # other tests leave others
        assert kept == clusters[1:]


def test_a_consumer_that_waits_with_an_old_password_is_closed(
    broker: devservers.SecureKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself it connects again, when the broker has hung up, and is refused again and again."""
    monkeypatch.setattr(warm_clients, "LOOK_SECONDS", 0.0)
    address = broker.at("sasl")
    old, new = (
        Cluster(address, security("SASL_PLAINTEXT", None, sasl("PLAIN", "flow", password)["sasl"]))
        for password in (PASSWORD, None)
    )
    with small_spans._assign(old, [], {}):
        pass  # it waits for the next look from here on
    deadline = time.monotonic() + SOON
    while old in {cluster for _, cluster, _ in small_spans._pools._kept}:
        assert time.monotonic() < deadline
        with small_spans._assign(new, [], {}):
            time.sleep(0.1)
    assert not [key for key in Consumers._open if old in key]


ALWAYS = ("wrong password, plain", "foreign client certificate", "no rights")


@pytest.mark.parametrize(
    "refusal",
    [pytest.param(one, marks=() if one in ALWAYS else pytest.mark.full) for one in REFUSALS],
)
def test_whoever_connects_is_told_the_same(refused: tuple[Config, str]) -> None:
    """Source, sink, status, error sink, and the look at many flows."""
    config, sentence = refused
    source, sink = KafkaSource.model_validate(config), KafkaSink.model_validate(config)
    target = Target("default/f", "kafka:t", "h", "src", "id", Rejects("skip"))
    together = type(source).open_together({"a": source, "b": source}).values()
    found = [
        _raised(lambda: sink.open(target, Run())),
        _raised(lambda: sink.peek(target)),
        _raised(sink.error_store().prepare),
        *together,
    ]
    for error in found:
        assert isinstance(error, PermanentError), error
        _is_clean(error, sentence)


def _raised(what: Callable[[], object]) -> object:
    began = time.monotonic()
    try:
        return what()
    except DataflowError as error:
        assert time.monotonic() - began < SOON
        return error


def _is_clean(error: DataflowError, sentence: str) -> None:
    text = str(error)
    assert re.search(sentence, text), text
    assert "\n" not in text
    assert not any(word in text for word in ("s3cret", "BEGIN", "Traceback"))


@pytest.mark.parametrize(
    ("listener", "config", "sentence"),
    [
        ("tls", {}, r"this listener is encrypted: add the block tls"),
        pytest.param(
            "sasltls",
            sasl("plain"),
            r"this listener is encrypted: add the block tls",
            marks=pytest.mark.full,
        ),
    ],
    ids=["plain", "sasl"],
)
def test_a_client_without_tls_is_told_of_it(
    broker: devservers.SecureKafka, topic: str, listener: str, config: Config, sentence: str
) -> None:
    source = {"brokers": [broker.at(listener)], "topic": topic, **config}
    with pytest.raises(PermanentError, match=sentence):
        KafkaSource.model_validate(source).open("default/f")


def allow(
    admin: AdminClient,
    user: str,
    kind: ResourceType,
    name: str,
    rights: str,
    *,
    prefix: bool = False,
) -> None:
    pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
    allowed = [
        AclBinding(
            kind, name, pattern, f"User:{user}", "*", AclOperation[right], AclPermissionType.ALLOW
        )
        for right in rights.split()
    ]
    for done in admin.create_acls(allowed).values():
        done.result(20)


_ACL = re.compile(r"^kafka-acls\.sh .*? --allow-principal User:flows (.*)$", re.MULTILINE)
_KINDS = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
}


def commands(page: str) -> Iterator[tuple[ResourceType, str, str, bool]]:
    """What each `kafka-acls.sh` of a page allows: kind, name, rights, whether it is a prefix."""
    for options in _ACL.findall(page):
        words = options.split()
        rights = [words[at + 1] for at, word in enumerate(words) if word == "--operation"]
        upper = " ".join(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", right).upper() for right in rights)
        yield _KINDS[words[0]], words[1], upper, "prefixed" in words


def test_the_rights_that_the_docs_list_are_enough(
    broker: devservers.SecureKafka,
    admin: AdminClient,
    topic: str,
    engine: SparkSession,
    tmp_path: Path,
) -> None:
    """The commands of docs/permissions.md; docs/guarantees/kafka.md has the same as a table."""
    user, target, errors = "narrow", f"{topic}-to", f"{topic}-errors"
    here = {
        (ResourceType.TOPIC, "orders"): topic,
        (ResourceType.TOPIC, "orders-paid"): target,
        (ResourceType.TOPIC, "orders-paid.rejected"): errors,
        (ResourceType.GROUP, "orders-paid"): topic,
        (ResourceType.TRANSACTIONAL_ID, "default/orders"): "default/secured",
    }
    found = list(commands((ROOT / "docs/permissions.md").read_text(encoding="utf-8")))
    assert {(kind, name) for kind, name, _, prefix in found if not prefix} <= here.keys()
    assert len(found) == len(here) + 1  # and the checkpoint topics
    for kind, name, rights, prefix in found:
        allow(admin, user, kind, here.get((kind, name), name), rights, prefix=prefix)
    good = [body(number) for number in range(10)]
    send(broker, topic, [*good, b"no json", b"{}"])
    end = {"brokers": [broker.at("sasl")], **sasl("scram-sha-256", user)}
    flow = manifest(
        tmp_path,
        {**end, "topic": topic, "consumerGroup": topic, "startingOffsets": "group"},
        {"type": "kafka", "config": {**end, "topic": target, "autoCreateTopic": True}},
        transformations=[{"type": "validate", "config": {"schema": {"required": ["id"]}}}],
        errors={"type": "kafka", "config": {**end, "topic": errors}},
        maxRejectedPercent=100,
    )
    run(flow, engine)
    expect(broker, target, good)
    assert len(committed(broker.bootstrap, errors)) == 2


def test_a_client_that_may_describe_but_not_read(
    broker: devservers.SecureKafka, admin: AdminClient, topic: str, engine: SparkSession
) -> None:
    send(broker, topic, [body(0)])
    allow(admin, "stranger", ResourceType.TOPIC, topic, "DESCRIBE")
    config = {"brokers": [broker.at("sasl")], "topic": topic, **sasl("scram-sha-512", "stranger")}
    source = KafkaSource.model_validate(config | {"startingOffsets": "earliest"})
    session = source.open("default/f")
    span = session.plan(session.start(), Limit())
    asked = [
        Asked(source, session.identity, piece, frozenset(), at, len(span.slices))
        for at, piece in enumerate(span.slices)
        if isinstance(piece, OffsetSlice) and not piece.empty
    ]
    assert len(asked) == 1
    ((_, batches),) = source.messages_together(asked)
    with pytest.raises(PermanentError) as caught:
        list(batches)
    _is_clean(caught.value, r"reading \S+ partition 0 from offset 0: .*grant this client")
    session.close()


def test_a_client_that_may_not_ask_its_group_goes_on(
    broker: devservers.SecureKafka, admin: AdminClient, topic: str
) -> None:
    """Nobody tells it of leaders, and nothing else is missing; a start needs the right."""
    send(broker, topic, [body(number) for number in range(4)])
    allow(admin, "stranger", ResourceType.TOPIC, topic, "READ DESCRIBE")
    config = {"brokers": [broker.at("sasl")], "topic": topic, **sasl("scram-sha-512", "stranger")}
    source = KafkaSource.model_validate(config | {"startingOffsets": "group"})
    session = source.open("default/f")
    began = time.monotonic()
    assert len(session.plan({"0": 1, "1": 0}, Limit()).slices) == 2
    assert time.monotonic() - began < SOON
    with pytest.raises(PermanentError, match="grant this client Read on the consumer group"):
        session.start()
    session.close()


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
