"""A record much larger than its neighbours is left out of Spark's batch, and read by the task."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.kafka.source import large_records
from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession
from dataflow_assets.connectors.memory import MemorySliceSink, Store
from dataflow_assets.contracts import Limit, OffsetSlice, Run
from dataflow_assets.errors import TransientError
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.micro_batch.arriving import BYTES, ready
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Request
from tests.conftest import Topics

LARGE_BYTES = 30_000  # of 10,000 such records a batch would be more than it may have
ALL = frozenset({"key", "timestamp", "headers"})


@pytest.fixture
def source(kafka: devservers.Kafka, topic: Topics) -> KafkaSource:
    name = topic(partitions=2)
    return KafkaSource.model_validate(
        {"brokers": [kafka.bootstrap], "topic": name, "consumerGroup": name}
    )


def name_of(number: int, large: frozenset[int]) -> str:
    return f"{number}-" + "x" * (LARGE_BYTES if number in large else 20)


def send(source: KafkaSource, count: int, large: frozenset[int]) -> None:
    producer = Producer({"bootstrap.servers": source.bootstrap(), "log_level": 0})
    for number in range(count):
        body = json.dumps({"id": number, "name": name_of(number, large)}).encode()
        producer.produce(source.topic, body, partition=number % 2)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("position", ["among", "first", "last", "all"])
def test_every_record_arrives_in_its_place(
    position: str, source: KafkaSource, store: Store, spark: SparkSession
) -> None:
    count = 24_000  # more than a batch of Spark's in each partition
    large = frozenset(
        {
            "among": {100, 101, 103, 11_000, 23_000},
            "first": {0, 1},
            "last": {count - 2, count - 1},
            "all": set(range(0, count, 100)) | set(range(1, 400, 2)),
        }[position]
    )
    send(source, count, large)
    name = store.path.stem.removeprefix("dataflow-memory-")
    sink = MemorySliceSink(store=name, table="t")
    flow = Flow("default", source.topic, source, (Branch(sink),), Policies(), hash="h1")
    list(drain(flow, lambda: spark, Request(run=Run())))
    stored = store.query('select partition, "offset", row from rows')
    found = {(partition, offset): json.loads(row) for partition, offset, row in stored}
    assert len(stored) == count
    for n in range(count):
        assert found[str(n % 2), n // 2] == {"id": n, "name": name_of(n, large)}


def test_only_what_is_large_is_left_out(source: KafkaSource, spark: SparkSession) -> None:
    send(source, 24_000, frozenset({7}))
    session = KafkaSourceSession(source, "default/orders")
    try:
        span = session.plan({}, Limit())
        frame = session.frame(spark, span, ALL)
        left_out = frame.where("_at < 0").select("_at", "body", "key").collect()
        assert [(-1 - row._at, row.body, row.key) for row in left_out] == [(3 * 2 + 1, None, None)]
        narrow = session.plan({"0": 11_990, "1": 0}, Limit(records=10))
        assert session.frame(spark, narrow, ALL).where("_at < 0").count() == 0  # ten are not much
    finally:
        session.close()


@pytest.mark.parametrize("what", ["key", "headers"])
def test_keys_and_headers_count_where_they_travel(
    what: str, source: KafkaSource, spark: SparkSession
) -> None:
    send(source, 24_000, frozenset())
    producer = Producer({"bootstrap.servers": source.bootstrap(), "log_level": 0})
    value = b"y" * LARGE_BYTES
    more = {"key": value} if what == "key" else {"headers": [("h", value)]}
    producer.produce(source.topic, b"{}", partition=0, **more)
    assert producer.flush(30) == 0
    session = KafkaSourceSession(source, "default/orders")
    try:
        span = session.plan({}, Limit())
        assert session.frame(spark, span, frozenset({what})).where("_at < 0").count() == 1
        assert session.frame(spark, span, frozenset()).where("_at < 0").count() == 0
    finally:
        session.close()


def test_a_record_that_is_gone_is_read_again_later(source: KafkaSource) -> None:
    send(source, 4, frozenset())
    with pytest.raises(TransientError, match="partition 1 offset 9: the record is large"):
        list(large_records.read(source, 1, [1, 9]))


class Recorded(KafkaSource):
    """Gives back what it is asked for."""

    def large_records(self, partition: str, offsets: object) -> Iterator[pa.RecordBatch]:
        assert isinstance(offsets, list)
        for offset in offsets:
            yield pa.record_batch({"body": [f"{partition}/{offset}".encode()]})


def test_large_records_stand_where_they_were(source: KafkaSource) -> None:
    slices = (OffsetSlice("0", 0, 9), OffsetSlice("1", 0, 9))
    at = [-1 - 5, 7, -1 - 9, -1 - 11, 13]  # all of the second slice, offsets 2 to 6
    body = pa.array([None, b"3", None, None, b"6"], pa.binary())
    batch = pa.record_batch({"_at": pa.array(at, pa.int64()), "body": body})
    recorded = Recorded.model_validate(source.model_dump(by_alias=True))
    rows = [row for found in ready([batch], recorded, slices) for row in found.to_pylist()]
    assert [(row["_at"], row["body"]) for row in rows] == [
        (5, b"1/2"),
        (7, b"3"),
        (9, b"1/4"),
        (11, b"1/5"),
        (13, b"6"),
    ]


def test_a_large_batch_is_divided(source: KafkaSource) -> None:
    body = pa.array([b"x" * 100_000] * 300)
    batch = pa.record_batch({"_at": pa.array(range(300), pa.int64()), "body": body})
    found = list(ready([batch.slice(0, 0), batch], source, (OffsetSlice("0", 0, 300),)))
    assert sum(part.num_rows for part in found) == 300
    assert 3 < len(found) < 10
    assert max(part.nbytes for part in found) <= BYTES
