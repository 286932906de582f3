"""What a broker refuses is one sentence at once, and no client stays behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

import devservers
from dataflow_assets.connectors.kafka import KafkaSink, KafkaSource, warm_clients
from dataflow_assets.connectors.kafka.cluster import Cluster, security
from dataflow_assets.connectors.kafka.consumers import Consumers
from dataflow_assets.connectors.kafka.sink import checkpoint
from dataflow_assets.connectors.kafka.sink.checkpoint import CheckpointTopic
from dataflow_assets.connectors.kafka.source import confirm, small_spans
from dataflow_assets.contracts import Rejects, Run, Target
from dataflow_assets.errors import DataflowError, PermanentError
from devservers.certificates import EXPIRED
from devservers.secure_kafka import USERS
from tests.connectors.kafka.security.secured import SOON, Config, ca, is_clean, sasl

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(240)]


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
    is_clean(error, sentence)


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


@pytest.mark.usefixtures("patient")
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
        is_clean(error, sentence)


def _raised(what: Callable[[], object]) -> object:
    began = time.monotonic()
    try:
        return what()
    except DataflowError as error:
        assert time.monotonic() - began < SOON
        return error


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
