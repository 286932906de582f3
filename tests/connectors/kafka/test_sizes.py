"""A micro-batch is bounded in bytes where it is read: what the first records promise is a guess."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.kafka.peek import KafkaSeen
from dataflow_assets.connectors.kafka.source import batch_size
from dataflow_assets.connectors.kafka.source.batch_size import Sizes
from dataflow_assets.connectors.memory import MemorySliceSink, Store
from dataflow_assets.contracts import Limit, Run
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Request
from tests.conftest import Topics

MIB = 1024 * 1024
SMALL, LARGE = 600, 20
LARGE_BYTES = 200_000


@pytest.fixture
def messages(kafka: devservers.Kafka, topic: Topics) -> str:
    """Small records, more than are looked at before a plan, and then large ones."""
    name = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for number in range(SMALL + LARGE):
        text = "x" * (50 if number < SMALL else LARGE_BYTES)
        producer.produce(name, json.dumps({"id": number, "name": text}).encode())
    assert producer.flush(30) == 0
    return name


def test_large_records_behind_small_ones_do_not_make_a_large_micro_batch(
    kafka: devservers.Kafka, messages: str, store: Store, spark: SparkSession
) -> None:
    source = KafkaSource.model_validate(
        {"brokers": [kafka.bootstrap], "topic": messages, "consumerGroup": messages}
    )
    name = store.name
    sink = MemorySliceSink(store=name, table="t")
    policies = Policies(limit=Limit(bytes=MIB))
    flow = Flow("default", messages, source, (Branch(sink),), policies, hash="h1")
    reports = [r for r in drain(flow, lambda: spark, Request(run=Run())) if not r.last]
    sizes = [report.delta.bytes for report in reports]
    assert sum(report.delta.rows for report in reports) == SMALL + LARGE
    assert max(sizes) <= 2 * MIB
    assert sum(size > MIB for size in sizes) <= 1  # from there on the plan knows better
    stored = store.query('select count(distinct "offset"), count(*) from rows')
    assert stored == [(SMALL + LARGE, SMALL + LARGE)]


class Looks:
    """A log whose records grow from an offset on, and how often it was looked at."""

    def __init__(self, grows: int) -> None:
        self.grows, self.count = grows, 0

    def __call__(self, positions: Mapping[int, int], _: float) -> dict[int, list[KafkaSeen]]:
        self.count += 1
        return {p: [KafkaSeen(0, 1000 if at >= self.grows else 10)] for p, at in positions.items()}


def test_a_slice_that_was_not_read_to_its_end_is_a_reason_to_look_again() -> None:
    grown = Looks(grows=100)
    sizes, limit = Sizes(grown), Limit(bytes=10_000)
    assert sizes.most({0: (0, 5000)}, limit) == {0: 1000}
    assert sizes.most({0: (120, 5000)}, limit) == {0: 10}  # the task has stopped at 120
    assert grown.count == 2


def test_a_slice_that_was_read_to_its_end_or_not_at_all_is_none() -> None:
    grown = Looks(grows=100)
    sizes, limit = Sizes(grown), Limit(bytes=10_000)
    sizes.most({0: (0, 5000)}, limit)
    sizes.most({0: (0, 5000)}, limit)
    sizes.most({0: (1000, 5000)}, limit)
    assert grown.count == 1


def test_a_partition_that_does_not_answer_holds_up_one_plan_only() -> None:
    asked = list[float]()

    def silent(_: Mapping[int, int], seconds: float) -> dict[int, list[KafkaSeen]]:
        asked.append(seconds)
        return {}

    sizes, limit = Sizes(silent), Limit(bytes=10_000, records=700)
    for begin in (0, 700):
        assert sizes.most({0: (begin, 5000)}, limit) == {0: 700}
    assert len(asked) == 1


def test_a_few_records_are_not_looked_at_again_and_many_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_size, "BELIEVED_SECONDS", 0.0)
    same = Looks(grows=100_000)
    sizes, limit = Sizes(same), Limit(bytes=10_000)
    sizes.most({0: (0, 5)}, limit)
    sizes.most({0: (5, 10)}, limit)
    assert same.count == 1, "they would fit if they were sixteen times as large"
    sizes.most({0: (10, 15)}, limit)
    assert same.count == 1, "nothing more was there to be read"
    sizes.most({0: (15, 5000)}, limit)
    assert same.count == 2
