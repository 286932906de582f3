from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from dataflow_assets import registry
from dataflow_assets.connectors.kafka import KafkaSink
from dataflow_assets.spec import hints
from tests.connectors.kafka.rules import placed

PLAIN = {"brokers": ["one:9092"], "topic": "orders"}


def parse(**config: Any) -> KafkaSink:
    text = json.dumps({**PLAIN, **config})
    return KafkaSink.model_validate_json(text, strict=True, by_alias=True, by_name=False)


def errors(**config: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        parse(**config)
    return [placed(error) for error in caught.value.errors()]


def test_defaults_are_the_originals() -> None:
    sink = parse()
    assert (sink.required_acks, sink.compression, sink.idempotent) == ("all", "none", True)
    assert (sink.takes, sink.commits, sink.traits.upserts) == ("messages", "slice", False)


def test_is_found_by_its_type_and_survives_pickling() -> None:
    assert registry.sinks()["kafka"] is KafkaSink
    sink = parse(upsertMode=True, conflictKey=["id", "$.at"], topicField="to")
    assert pickle.loads(pickle.dumps(sink)) == sink  # noqa: S301
    assert [path.text for path in sink.conflict_key] == ["id", "at"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"idempotent": True, "requiredAcks": "local"},
            [("requiredAcks", "idempotent: true needs requiredAcks: all")],
        ),
        ({"conflictKey": "id"}, [("conflictKey", "conflictKey requires upsertMode: true")]),
        (
            {"keyField": "a", "keyTemplate": "${$.b}"},
            [("keyTemplate", "keyField and keyTemplate exclude each other: keep one")],
        ),
        (
            {"topic": "two words"},
            [
                (
                    "topic",
                    (
                        "not a topic's name: letters a-z, digits, `.`, `_` and `-` are allowed, "
                        "up to 249"
                    ),
                )
            ],
        ),
        (
            {"topicPartitions": 3},
            [("topicPartitions", "topicPartitions requires autoCreateTopic: true")],
        ),
        (
            {"keyTemplate": "${metadata.key}"},
            [
                (
                    "keyTemplate",
                    "Value error, a key is made of the body alone: allowed is ${$.path}",
                )
            ],
        ),
        (
            {"flushFrequency": "soon"},
            [
                (
                    "flushFrequency",
                    "Value error, must be a duration above zero, like 500ms or 1m30s",
                )
            ],
        ),
    ],
)
def test_what_contradicts_itself_is_told(
    config: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert errors(**config) == expected


def test_a_template_with_an_unknown_placeholder_is_told() -> None:
    ((place, message),) = errors(keyTemplate="${id}")
    assert place == "keyTemplate"
    assert "a placeholder that does not exist" in message


def test_weaker_deliveries_are_hints_and_served_exactly_once() -> None:
    sink = parse(requiredAcks="local", **{"async": True}, flushMessages=100, flushFrequency="100ms")
    assert {path for path, _ in hints(sink)} == {
        "requiredAcks",
        "async",
        "flushMessages",
        "flushFrequency",
    }
    assert (
        parse(maxOpenRequests=9).producer_settings()["max.in.flight.requests.per.connection"] == 5
    )
