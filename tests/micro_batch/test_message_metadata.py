"""Metadata as it comes from messages that nobody should send."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.contracts import EVERYTHING, MESSAGES, OffsetSlice
from dataflow_assets.micro_batch.message_metadata import MetadataRows
from dataflow_assets.records.record import encode

SOURCE = KafkaSource(brokers=("localhost:9092",), topic="t")


def test_a_time_that_no_calendar_has_is_its_number() -> None:
    late = 253_402_300_800_000  # the year 10000, in milliseconds
    times = [0, late * 1000, None, -(2**62), 1]
    columns = {
        "_at": pa.array(range(len(times)), pa.int64()),
        "body": pa.array([b"{}"] * len(times), pa.binary()),
        "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
    }
    rows = MetadataRows(SOURCE, OffsetSlice("0", 0, len(times)), 1, frozenset({"timestamp"}))
    found = [metadata["timestamp"] for _, metadata in rows.records(pa.record_batch(columns))]
    assert found[:3] == [datetime(1970, 1, 1, tzinfo=UTC), late, None]
    assert found[3] == -(2**62) // 1000
    assert found[4] == datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)


def test_bytes_that_are_no_text_can_be_stored_all_the_same() -> None:
    sent = [{"key": "a", "value": b"\xff"}, {"key": "b", "value": None}]
    headers = pa.array([sent, []], MESSAGES.field("headers").type)
    columns = {
        "_at": pa.array([0, 1], pa.int64()),
        "body": pa.array([b"", None], pa.binary()),
        "key": pa.array([b"\xed\xa0\x80", None], pa.binary()),
        "headers": headers,
    }
    rows = MetadataRows(SOURCE, OffsetSlice("0", 0, 2), 1, frozenset({EVERYTHING}))
    first, second = (dict(metadata) for _, metadata in rows.records(pa.record_batch(columns)))
    assert first["headers"] == {"a": "\ufffd", "b": ""}
    assert (second["key"], second.get("headers")) == ("", None)
    assert encode([first, second]).count(b"topic") == 2
