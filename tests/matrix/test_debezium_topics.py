"""Topics of Debezium into sinks that hold rows by their key: values, placeholders, deletes."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dataflow_assets.errors import PermanentError
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from dataflow_assets.testing import choose
from tests.connectors.kafka.system import Kafka
from tests.flows import SYSTEMS, made_by, manifest
from tests.systems import Row

ABSENT = "__debezium_unavailable_value"
FIELDS = [
    {"field": "id", "type": "int32"},
    {"field": "amount", "type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
    {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
    {"field": "body", "type": "string"},
]
SIDES = [{"field": side, "type": "struct", "fields": FIELDS} for side in ("before", "after")]
SCHEMA = {"type": "struct", "fields": SIDES}


def event(op: str, row: Row) -> bytes:
    before, after = (row, None) if op == "d" else (None, row)
    return json.dumps(
        {"schema": SCHEMA, "payload": {"op": op, "before": before, "after": after}}
    ).encode()


def row(number: int, body: str, at: int = 1667304001123456) -> Row:
    amount = {"scale": 3, "value": "AeJA"}
    return {"id": number, "amount": amount, "at": at, "day": 19297, "body": body}


EVENTS = (
    event("c", row(1, "a very long text")),
    event("u", row(1, ABSENT, at=0)),
    event("c", row(2, "two")),
    event("d", row(2, "two")),
    event("c", row(3, "three")),
    event("u", row(3, "four")),
    event("u", row(3, ABSENT, at=1)),
)


class Topic:
    """A topic of Debezium, and the flow from it into a sink by key."""

    def __init__(
        self,
        sink: str,
        request: pytest.FixtureRequest,
        spark: SparkSession,
        folder: Path,
        **options: Any,
    ) -> None:
        self.kafka, self.sink, self._spark = Kafka(request), SYSTEMS[sink](request), spark
        self.read = self.kafka.at("source", {})
        self.stored = self.sink.at("sink", {**made_by(self.sink), **(self.sink.upsert or {})})
        ends = (("kafka", self.read), (sink, self.stored))
        steps = [{"type": "debeziumUnwrap", "config": options}]
        self._flow = choose(load(manifest(folder, *ends, transformations=steps)), None)

    def drain(self, *events: bytes) -> None:
        self.kafka.send(self.read, *events)
        list(drain(self._flow, lambda: self._spark, Request(patience=Patience(0, 0.05, 0.2))))


@pytest.mark.parametrize("several", [True, False], ids=["one batch", "one by one"])
@pytest.mark.parametrize("sink", ["postgresql", "clickhouse", "iceberg"])
def test_values_are_as_the_schema_says_and_a_placeholder_changes_nothing(
    sink: str,
    several: bool,
    request: pytest.FixtureRequest,
    engine: SparkSession,
    tmp_path: Path,
) -> None:
    topic = Topic(sink, request, engine, tmp_path)
    for events in [EVENTS] if several else [(one,) for one in EVENTS]:
        topic.drain(*events)
    rows = {one["id"]: one for one in topic.sink.rows(topic.stored)}
    assert {number: one["body"] for number, one in rows.items()} == {
        1: "a very long text",
        3: "four",
    }
    assert float(rows[1]["amount"]) == 123.456
    assert str(rows[1]["day"]) in ("2022-11-01", str(date(2022, 11, 1)))
    assert str(rows[1]["at"])[:19].replace("T", " ") == str(datetime(1970, 1, 1, tzinfo=UTC))[:19]


def test_a_topic_that_keeps_the_last_record_of_a_key_takes_no_row_that_lacks_a_value(
    request: pytest.FixtureRequest, engine: SparkSession, tmp_path: Path
) -> None:
    topic = Topic("kafka", request, engine, tmp_path)
    topic.drain(*EVENTS[:1])
    with pytest.raises(PermanentError, match="would lack values: the change has left body alone"):
        topic.drain(*EVENTS[1:2])
    other = Topic("kafka", request, engine, tmp_path, unavailableValuePlaceholder="")
    other.drain(*EVENTS[:2])
    assert [one["body"] for one in other.sink.rows(other.stored)] == [ABSENT]
