from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from confluent_kafka import Consumer
from pydantic import SecretStr, ValidationError

from dataflow_assets import registry
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.kafka.cluster import security
from dataflow_assets.connectors.kafka.connection import Sasl
from dataflow_assets.connectors.kafka.consumers import SETTINGS
from dataflow_assets.connectors.kafka.source import small_spans
from dataflow_assets.connectors.kafka.times import milliseconds
from dataflow_assets.contracts import Address
from dataflow_assets.errors import PermanentError
from dataflow_assets.secrets import Secrets, resolve
from dataflow_assets.secrets.tls import Material
from dataflow_assets.spec import hints
from tests.connectors.kafka.rules import placed

PLAIN = {"brokers": ["one:9092", "two:9092"], "topic": "orders"}
REF = {"name": "kafka-prod", "key": "value"}
SASL = {"mechanism": "SCRAM-SHA-256", "username": "u", "password": "hush-hush"}


def parse(**config: Any) -> KafkaSource:
    """`PLAIN` with changes; what a Secret has is not there as a value."""
    plain = {key: value for key, value in PLAIN.items() if f"{key}SecretRef" not in config}
    text = json.dumps({**plain, **config})
    return KafkaSource.model_validate_json(text, strict=True, by_alias=True, by_name=False)


def errors(**config: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        parse(**config)
    assert "hush-hush" not in str(caught.value)
    return [placed(error) for error in caught.value.errors()]


def test_defaults_are_the_originals() -> None:
    source = parse()
    assert (source.consumer_group, source.format) == ("dataflow-operator", "json")
    assert (source.starting_offsets, source.on_data_loss) == ("group", "fail")
    assert (source.tombstones, source.on_topic_recreated) == ("reject", "fail")
    assert source.delivers == "messages"
    assert source.protocol == "PLAINTEXT"


def test_is_found_by_its_type_and_survives_pickling() -> None:
    assert registry.sources()["kafka"] is KafkaSource
    source = parse(consumerGroup="g")
    assert pickle.loads(pickle.dumps(source)) == source  # noqa: S301


@pytest.mark.parametrize(
    ("config", "address"),
    [
        ({}, Address("kafka", "one", None, "orders")),
        ({"brokers": ["A.b.example:9093"]}, Address("kafka", "a-b-example-9093", None, "orders")),
        ({"brokersSecretRef": REF}, Address("kafka", "kafka-prod", None, "orders")),
        ({"brokers": [], "brokersSecretRef": REF}, Address("kafka", "kafka-prod", None, "orders")),
        (
            {"topic": "", "topicSecretRef": REF},
            Address("kafka", "one", None, "kafka-prod/value"),
        ),
    ],
)
def test_address_needs_neither_network_nor_secrets(
    config: dict[str, Any], address: Address
) -> None:
    assert parse(**config).address() == address


def test_secrets_fill_their_fields() -> None:
    source = parse(brokersSecretRef=REF, topicSecretRef=REF, consumerGroupSecretRef=REF)
    value = {"value": SecretStr("a:1, b:2,")}
    found = resolve(source, Secrets(documents={("default", "kafka-prod"): value}))
    assert found.bootstrap() == "a:1,b:2"
    assert (found.topic, found.consumer_group) == ("a:1, b:2,", "a:1, b:2,")


def test_a_secret_without_a_port_is_named_but_not_echoed() -> None:
    value = {"value": SecretStr("hush-hush")}
    source = resolve(
        parse(brokersSecretRef=REF), Secrets(documents={("default", "kafka-prod"): value})
    )
    with pytest.raises(PermanentError, match="brokersSecretRef") as caught:
        source.bootstrap()
    assert "hush" not in str(caught.value)


NEITHER = "; leave one of them out"
MATRIX: list[tuple[str, dict[str, Any], dict[str, Any], list[str]]] = [
    ("PLAINTEXT", {}, {}, []),
    ("PLAINTEXT", {"tls": {}}, {}, [f"PLAINTEXT forbids the block tls{NEITHER}"]),
    ("PLAINTEXT", {}, {"sasl": SASL}, [f"PLAINTEXT forbids the block sasl{NEITHER}"]),
    ("SSL", {}, {}, ["SSL requires the block tls; add it"]),
    ("SSL", {"tls": {}}, {}, []),
    ("SSL", {"tls": {}}, {"sasl": SASL}, [f"SSL forbids the block sasl{NEITHER}"]),
    ("SASL_PLAINTEXT", {}, {"sasl": SASL}, []),
    ("SASL_PLAINTEXT", {}, {}, ["SASL_PLAINTEXT requires the block sasl; add it"]),
    (
        "SASL_PLAINTEXT",
        {"tls": {}},
        {"sasl": SASL},
        [f"SASL_PLAINTEXT forbids the block tls{NEITHER}"],
    ),
    ("SASL_SSL", {"tls": {}}, {"sasl": SASL}, []),
    ("SASL_SSL", {"tls": {}}, {}, ["SASL_SSL requires the block sasl; add it"]),
    ("SASL_SSL", {}, {"sasl": SASL}, ["SASL_SSL requires the block tls; add it"]),
    (
        "SASL_SSL",
        {},
        {},
        ["SASL_SSL requires the blocks tls and sasl; add them"],
    ),
]


@pytest.mark.parametrize(("protocol", "tls", "sasl", "rules"), MATRIX)
def test_protocol_and_blocks_must_agree(
    protocol: str, tls: dict[str, Any], sasl: dict[str, Any], rules: list[str]
) -> None:
    config = {"securityProtocol": protocol.lower().replace("_", "-"), **tls, **sasl}
    if rules:
        assert errors(**config) == [("securityProtocol", rule) for rule in rules]
    else:
        assert parse(**config).protocol == protocol


@pytest.mark.parametrize(
    ("config", "protocol"),
    [
        ({}, "PLAINTEXT"),
        ({"tls": {"caSecretRef": REF}}, "SSL"),
        ({"sasl": SASL}, "SASL_PLAINTEXT"),
        ({"sasl": SASL, "tls": {}}, "SASL_SSL"),
    ],
)
def test_the_protocol_follows_from_the_blocks(config: dict[str, Any], protocol: str) -> None:
    assert parse(**config).protocol == protocol


USER = {
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "u",
    "sasl.password": "hush-hush",
}
TRANSLATED: list[tuple[str, Material | None, dict[str, str]]] = [
    ("PLAINTEXT", None, {}),
    ("SSL", Material(), {"security.protocol": "ssl"}),
    (
        "SSL",
        Material("CA", "CERT", "KEY"),
        {
            "security.protocol": "ssl",
            "ssl.ca.pem": "CA",
            "ssl.certificate.pem": "CERT",
            "ssl.key.pem": "KEY",
        },
    ),
    (
        "SSL",
        Material(verify=False),
        {"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"},
    ),
    ("SASL_PLAINTEXT", None, USER | {"security.protocol": "sasl_plaintext"}),
    ("SASL_SSL", Material("CA"), USER | {"security.protocol": "sasl_ssl", "ssl.ca.pem": "CA"}),
]


@pytest.mark.parametrize(("protocol", "tls", "expected"), TRANSLATED)
def test_every_option_has_its_name_in_the_client(
    protocol: str, tls: Material | None, expected: dict[str, str]
) -> None:
    sasl = Sasl.model_validate(SASL).settings() if "SASL" in protocol else None
    assert dict(security(protocol, tls, sasl)) == expected


def test_a_cluster_shows_no_secret() -> None:
    cluster = parse(sasl=SASL).cluster()
    assert "hush" not in repr(cluster)
    assert cluster.settings["sasl.password"] == "hush-hush"
    assert not cluster.plain
    assert parse().cluster().plain


def test_flows_that_authenticate_otherwise_share_no_connection() -> None:
    other = parse(sasl={**SASL, "password": "another-one"})
    assert parse(sasl=SASL).connection_group == parse(sasl=SASL).connection_group
    assert (
        len({parse().connection_group, parse(sasl=SASL).connection_group, other.connection_group})
        == 3
    )


@pytest.mark.parametrize("field", ["username", "password"])
def test_an_empty_secret_is_named(field: str) -> None:
    given = {"username": "u", "password": "p"} | {field: ""} | {f"{field}SecretRef": REF}
    source = resolve(
        parse(sasl=given), Secrets(documents={("default", "kafka-prod"): {"value": SecretStr("")}})
    )
    with pytest.raises(PermanentError, match=f"sasl.{field} is required, and its secret is empty"):
        source.cluster()


@pytest.mark.parametrize(
    ("config", "path", "note"),
    [
        ({"tls": {"insecureSkipVerify": True}}, "tls.insecureSkipVerify", "is not checked"),
        (
            {"tls": {"insecureSkipVerify": True, "caFile": "/c"}},
            "tls.insecureSkipVerify",
            "ignored",
        ),
        ({"sasl": {**SASL, "mechanism": "plain"}}, "sasl", "goes over the network as it is"),
    ],
)
def test_what_is_unsafe_is_noted(config: dict[str, Any], path: str, note: str) -> None:
    ((where, sentence),) = hints(parse(**config))
    assert where == path
    assert note in sentence


def test_what_is_safe_is_not_noted() -> None:
    assert [*hints(parse(sasl=SASL, tls={}))] == []
    assert [*hints(parse(sasl=SASL))] == []


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({}, {}),
        (
            {"consumerMaxWait": "100ms", "netReadTimeout": "5s", "fetchMinBytes": 0},
            {"fetch.wait.max.ms": 100, "socket.timeout.ms": 5_000, "fetch.min.bytes": 1},
        ),
        (
            {"consumerMaxWait": "5m", "fetchMaxBytes": 2**31 - 1, "maxPartitionFetchBytes": 7},
            {
                "fetch.wait.max.ms": 5_000,
                "fetch.max.bytes": 1_000_000_000,
                "fetch.message.max.bytes": 7,
            },
        ),
    ],
)
def test_fetches_are_tuned_in_the_bounds_of_the_client(
    declared: dict[str, Any], expected: dict[str, int]
) -> None:
    source = parse(**declared)
    assert source.fetch_settings() == expected
    Consumer(SETTINGS | source.fetch_settings() | {"group.id": "g"}).close()


def test_no_broker_holds_a_fetch_back_until_its_slice_is_given_up() -> None:
    """The end of a log is known only once a fetch comes back empty."""
    held = parse(consumerMaxWait="1m").fetch_settings()["fetch.wait.max.ms"] / 1000
    assert held < small_spans.SILENCE


@pytest.mark.parametrize(
    ("config", "where", "message"),
    [
        ({"sasl": {"username": "u"}}, "sasl", "password is required: set password or"),
        ({"sasl": {**SASL, "mechanism": "gssapi"}}, "sasl.mechanism", "Input should be 'plain'"),
        ({"tls": {"certFile": "/c"}}, "tls", "certFile and keyFile belong together"),
        ({"tls": {"caPath": "/c"}}, "tls.caPath", "Extra inputs"),
        ({"brokers": ["one"]}, "brokers", "must each be host:port"),
        ({"brokers": []}, "", "brokers is required: set brokers or brokersSecretRef"),
        ({"topic": ""}, "", "topic is required"),
        ({"format": "avro"}, "format", "avro needs a schema: set schemaRegistry, avroSchema"),
        ({"format": "xml"}, "format", "Input should be 'json', 'avro' or 'protobuf'"),
        ({"schemaRegistry": {"url": "r"}}, "schemaRegistry.url", "must be the address of a"),
        ({"avroSchema": "{}"}, "avroSchema", "no Avro schema"),
        ({"consumerMaxWait": "5"}, "consumerMaxWait", "must be a duration above zero"),
        ({"fetchMaxBytes": 0}, "fetchMaxBytes", "greater than 0"),
        ({"netReadTimeout": "1s", "consumerMaxWait": "1s"}, "", "netReadTimeout must be greater"),
        ({"startingOffsets": "timestamp"}, "", "startingTimestamp is required"),
        ({"startingTimestamp": "2026-01-31T00:00:00Z"}, "", "startingTimestamp is used only"),
        ({"startingTimestamp": "2026-01-31"}, "startingTimestamp", "with a zone"),
    ],
)
def test_mistakes_are_found_where_they_are(
    config: dict[str, Any], where: str, message: str
) -> None:
    assert any(at == where and message in what for at, what in errors(**config))


def test_all_problems_come_at_once() -> None:
    found = errors(topic="", format="avro", securityProtocol="SSL")
    needs = "avro needs a schema: set schemaRegistry, avroSchema, avroSchemaFile or "
    assert sorted(found) == [
        ("", "topic is required: set topic or topicSecretRef"),
        ("format", f"{needs}avroSchemaSecretRef"),
        ("securityProtocol", "SSL requires the block tls; add it"),
    ]


def test_the_write_timeout_is_a_hint() -> None:
    assert [path for path, _ in hints(parse(netWriteTimeout="5s"))] == ["netWriteTimeout"]


@pytest.mark.parametrize(
    ("text", "expected"), [("500ms", 500), ("1m30s", 90_000), ("1.5s", 1500), ("2h", 7_200_000)]
)
def test_durations_are_written_as_in_go(text: str, expected: int) -> None:
    assert milliseconds(text) == expected


@pytest.mark.parametrize("text", ["", "0s", "5", "s", "1s5", "-1s", "1 s", "10us"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        milliseconds(text)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"brokers": "b\n"}, "the secret of brokersSecretRef must hold host:port,host:port,..."),
        ({"brokers": ""}, "the secret of brokersSecretRef must hold host:port,host:port,..."),
        ({"topic": "orders\n"}, "the secret of topicSecretRef must hold the name of a topic: lett"),
        ({"topic": ""}, "the secret of topicSecretRef must hold the name of a topic: letters a-z"),
        ({"group": ""}, "the secret of consumerGroupSecretRef is empty: it must hold a name"),
    ],
)
def test_what_a_secret_must_hold(values: dict[str, str], said: str) -> None:
    """With an empty group librdkafka ends the whole process, and so all flows of a lane."""
    options = {"brokers": "brokersSecretRef", "topic": "topicSecretRef"}
    options["group"] = "consumerGroupSecretRef"
    refs = {option: {"name": "kafka", "key": key} for key, option in options.items()}
    held = {"brokers": " b:1 ,c:2\n", "topic": "t", "group": "g"}

    def resolved(found: dict[str, str]) -> KafkaSource:
        secrets = {("default", "kafka"): {key: SecretStr(value) for key, value in found.items()}}
        return resolve(KafkaSource.model_validate(refs), Secrets("default", secrets))

    assert resolved(held).cluster().bootstrap == "b:1,c:2"
    with pytest.raises(PermanentError) as caught:
        resolved(held | values).open("default/f")
    assert str(caught.value).startswith(said)
