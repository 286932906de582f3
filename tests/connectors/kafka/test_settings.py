from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from dataflow_assets import registry
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.kafka.options import milliseconds
from dataflow_assets.contracts import Address
from dataflow_assets.errors import PermanentError
from dataflow_assets.secrets import Secrets, resolve
from dataflow_assets.spec import hints

PLAIN = {"brokers": ["one:9092", "two:9092"], "topic": "orders"}
REF = {"name": "kafka-prod", "key": "value"}
SASL = {"mechanism": "SCRAM-SHA-256", "username": "u", "password": "hush-hush"}


def parse(**config: Any) -> KafkaSource:
    text = json.dumps({**PLAIN, **config})
    return KafkaSource.model_validate_json(text, strict=True, by_alias=True, by_name=False)


def errors(**config: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        parse(**config)
    assert "hush-hush" not in str(caught.value)
    return [(".".join(map(str, e["loc"])), e["msg"]) for e in caught.value.errors()]


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
        ({"brokersSecretRef": REF}, Address("kafka", "one", None, "orders")),
        ({"brokers": [], "brokersSecretRef": REF}, Address("kafka", "kafka-prod", None, "orders")),
        ({"topic": "", "topicSecretRef": REF}, Address("kafka", "one", None, "kafka-prod")),
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


LATER = "not supported yet: encrypted and authenticated connections to Kafka"
MATRIX: list[tuple[str, dict[str, Any], dict[str, Any], str | None]] = [
    ("PLAINTEXT", {}, {}, None),
    ("PLAINTEXT", {"tls": {}}, {}, "PLAINTEXT forbids the block tls; leave one of them out"),
    ("PLAINTEXT", {}, {"sasl": SASL}, "PLAINTEXT forbids the block sasl; leave one of them out"),
    ("SSL", {}, {}, None),
    ("SSL", {"tls": {}}, {}, None),
    ("SSL", {"tls": {}}, {"sasl": SASL}, "SSL forbids the block sasl; leave one of them out"),
    ("SASL_PLAINTEXT", {}, {"sasl": SASL}, None),
    ("SASL_PLAINTEXT", {}, {}, None),
    (
        "SASL_PLAINTEXT",
        {"tls": {}},
        {"sasl": SASL},
        "SASL_PLAINTEXT forbids the block tls; leave one of them out",
    ),
    ("SASL_SSL", {"tls": {}}, {"sasl": SASL}, None),
    ("SASL_SSL", {"tls": {}}, {}, None),
    ("SASL_SSL", {}, {"sasl": SASL}, None),
]


@pytest.mark.parametrize(("protocol", "tls", "sasl", "rule"), MATRIX)
def test_protocol_and_blocks_must_agree(
    protocol: str, tls: dict[str, Any], sasl: dict[str, Any], rule: str | None
) -> None:
    config = {"securityProtocol": protocol.lower().replace("_", "-"), **tls, **sasl}
    found = errors(**config) if (rule or protocol != "PLAINTEXT") else []
    rules = [(where, what) for where, what in found if what != LATER]
    assert rules == ([("securityProtocol", rule)] if rule else [])


@pytest.mark.parametrize(
    ("config", "protocol", "refused"),
    [
        ({}, "PLAINTEXT", []),
        ({"tls": {"caSecretRef": REF}}, "SSL", ["tls"]),
        ({"sasl": SASL}, "SASL_PLAINTEXT", ["sasl"]),
        ({"sasl": SASL, "tls": {}}, "SASL_SSL", ["sasl", "tls"]),
    ],
)
def test_what_the_blocks_imply_is_refused_at_the_blocks(
    config: dict[str, Any], protocol: str, refused: list[str]
) -> None:
    assert parse().model_copy(update=config).protocol == protocol
    found = errors(**config) if refused else []
    assert sorted(found) == [(key, LATER) for key in refused]


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
        ("securityProtocol", LATER),
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
