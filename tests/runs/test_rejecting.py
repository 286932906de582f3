"""The record that an error sink gets: the DataFlow Operator's, and more of its origin."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from dataflow_assets.contracts import OffsetSlice, Rejection, Target
from dataflow_assets.sdk.record_ids import rejection_id
from dataflow_assets.sdk.rejected_records import classify, error_record

TARGET = Target("default/orders", "postgresql:db/public/orders", "hash", "t", "topic-1")
SLICE = OffsetSlice("0", 0, 10)


def recorded(rejection: Rejection, target: Target = TARGET) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(error_record(target, SLICE, rejection).body)
    return body


def test_the_references_own_example() -> None:
    reason, metadata = 'null value in column "n"', {"topic": "t", "offset": 4}
    rejection = Rejection(4, "sink", reason, b'{"id":1}', metadata=metadata)
    record = recorded(rejection)
    assert list(record) == ["error", "original_message"]
    assert list(record["error"])[:4] == ["message", "timestamp", "original_sink", "metadata"]
    assert record["error"]["message"] == reason
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", record["error"]["timestamp"])
    assert record["error"]["original_sink"] == "postgresql"
    assert record["error"]["metadata"] == metadata
    assert record["original_message"] == {"id": 1}
    metadata = json.loads(error_record(TARGET, SLICE, rejection).metadata)
    assert metadata == {
        "error": reason,
        "error_timestamp": metadata["error_timestamp"],
        "original_sink": "postgresql",
        "is_error_message": True,
    }


def test_our_own_fields_tell_where_it_came_from() -> None:
    rejection = Rejection(4, "step", "no", b'{"id":1}', n=2, step=3, step_type="cast", rows=3)
    error = recorded(rejection, replace(TARGET, reading=7))["error"]
    assert error["id"] == rejection_id(rejection, TARGET, SLICE)
    assert (error["flow"], error["branch"]) == (TARGET.flow, TARGET.branch)
    assert (error["stage"], error["step"], error["step_type"]) == ("step", 3, "cast")
    place = {"topic": "t", "partition": "0", "offset": 4}
    assert error["source"] == {**place, "n": 2, "rows": 3}
    assert error["reading"] == 7
    assert error["metadata"] == {"topic": "t", "partition": "0", "offset": 4}
    assert error["attempt"] == 1


@pytest.mark.parametrize(
    ("body", "original"),
    [
        (b'{"b": 1, "a": 12345678901234567890.10}', '{"b": 1, "a": 12345678901234567890.10}'),
        (b"[1, 2]", '{"original_data":"[1, 2]"}'),
        (b"7", '{"original_data":"7"}'),
        (b"plain", '{"original_data":"plain"}'),
        (b"", '{"original_data":""}'),
        (b"\xff", '{"original_data_base64":"/w=="}'),
        (None, '{"original_data":null}'),
    ],
)
def test_the_message_stands_as_it_was_sent(body: bytes | None, original: str) -> None:
    record = error_record(TARGET, SLICE, Rejection(4, "sink", "no", body)).body.decode()
    assert record.endswith(f',"original_message":{original}}}')


@pytest.mark.parametrize(
    "rejection",
    [
        Rejection(1, "sink", "half of a pair: \ud800", b"{}"),
        Rejection(1, "sink", "no", b"{}", metadata={"header": "\ud800"}),
        Rejection(1, "sink", "no", b"{}", metadata={"long": 10**5_000}),
    ],
    ids=["reason", "metadata", "number"],
)
def test_a_record_is_made_of_whatever_was_rejected(rejection: Rejection) -> None:
    error = recorded(rejection)["error"]
    assert error["source"]["offset"] == 1
    assert error["metadata"] == {"topic": "t", "partition": "0", "offset": 1}


@pytest.mark.parametrize(
    ("reason", "stage", "wanted"),
    [
        ("dial tcp: I/O timeout", "sink", "timeout"),
        ("Connection refused", "sink", "connection_error"),
        ("SASL handshake", "sink", "auth_error"),
        ("please retry your query", "sink", "transient"),
        ("schema does not match", "sink", "invalid_data"),
        ("id is negative", "sink", "unknown"),
        ("id is negative", "decode", "invalid_data"),
    ],
)
def test_the_class_is_told_from_the_text(reason: str, stage: str, wanted: str) -> None:
    assert classify(reason, stage) == wanted


def test_a_class_that_is_known_is_not_guessed() -> None:
    rejection = Rejection(1, "sink", "invalid", b"{}", error_type="constraint_violation")
    assert recorded(rejection)["error"]["type"] == "constraint_violation"
