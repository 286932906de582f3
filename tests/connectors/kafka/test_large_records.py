"""A record much larger than its neighbours is left out of Spark's batch, and read by the task."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.kafka.peek import Peek
from dataflow_assets.connectors.kafka.source import large_records
from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession
from dataflow_assets.connectors.memory import MemorySliceSink, Store
from dataflow_assets.contracts import Limit, Run
from dataflow_assets.errors import TransientError
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.micro_batch.large_records import with_large_values
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Request
from dataflow_assets.spark.server import ARROW_RECORDS
from tests.conftest import Topics

LARGE_BYTES = large_records.BATCH_BYTES // ARROW_RECORDS + 1  # too much for a whole batch
ALL = frozenset({"key", "timestamp", "headers"})
HEADERS = [("h", b"y" * LARGE_BYTES), ("null", None), ("h", b"")]
STAMP = 1_700_000_000_123
LeftOut = Callable[[frozenset[str], Limit], list[int]]


@pytest.fixture
def source(kafka: devservers.Kafka, topic: Topics) -> KafkaSource:
    name = topic(partitions=2)
    return KafkaSource.model_validate(
        {"brokers": [kafka.bootstrap], "topic": name, "consumerGroup": name}
    )


@pytest.fixture
def peeks(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[object, Peek]]:
    """What a worker keeps for its life."""
    found: dict[object, Peek] = {}
    monkeypatch.setattr(large_records, "_peeks", found)
    yield found
    for peek in found.values():
        peek.close()


def name_of(number: int, large: frozenset[int]) -> str:
    return f"{number}-" + "x" * (LARGE_BYTES if number in large else 20)


def send(source: KafkaSource, count: int, large: frozenset[int]) -> None:
    settings = {"bootstrap.servers": source.bootstrap(), "log_level": 0}
    producer = Producer({**settings, "enable.idempotence": True})  # keeps the order
    for number in range(count):
        body = json.dumps({"id": number, "name": name_of(number, large)}).encode()
        producer.produce(source.topic, body, partition=number % 2)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("position", ["among", "first", "last", "many"])
def test_every_record_arrives_in_its_place(
    position: str, source: KafkaSource, store: Store, spark: SparkSession
) -> None:
    count = 24_000  # more than a batch of Spark's in each partition
    large = frozenset(
        {
            "among": {100, 101, 103, 11_000, 23_000},
            "first": {0, 1},
            "last": {count - 2, count - 1},
            "many": set(range(0, count, 100)) | set(range(1, 400, 2)),
        }[position]
    )
    send(source, count, large)
    name = store.name
    sink = MemorySliceSink(store=name, table="t")
    flow = Flow("default", source.topic, source, (Branch(sink),), Policies(), hash="h1")
    list(drain(flow, lambda: spark, Request(run=Run())))
    stored = store.query('select partition, "offset", row from rows')
    found = {(partition, offset): json.loads(row) for partition, offset, row in stored}
    assert len(stored) == count
    for n in range(count):
        assert found[str(n % 2), n // 2] == {"id": n, "name": name_of(n, large)}


@pytest.fixture
def left_out(source: KafkaSource, spark: SparkSession) -> Iterator[LeftOut]:
    """The positions of the records whose values the frame of a span leaves out."""
    session = KafkaSourceSession(source, "default/orders")

    def read(columns: frozenset[str], limit: Limit) -> list[int]:
        frame = session.frame(spark, session.plan({}, limit), columns)
        rows = frame.where("_at < 0").collect()
        assert all(row.body is None for row in rows)
        return [-1 - row._at for row in rows]

    yield read
    session.close()


def test_only_values_of_large_records_are_left_out(source: KafkaSource, left_out: LeftOut) -> None:
    send(source, 24_000, frozenset({7}))
    assert left_out(ALL, Limit()) == [3 * 2 + 1]
    assert left_out(ALL, Limit(records=10)) == []  # ten such records fit into a batch


@pytest.mark.parametrize("what", ["key", "headers"])
def test_keys_and_headers_count_where_they_travel(
    what: str, source: KafkaSource, left_out: LeftOut
) -> None:
    send(source, 24_000, frozenset())
    produce(source, **{what: b"y" * LARGE_BYTES if what == "key" else HEADERS})
    assert left_out(frozenset({what}), Limit()) == [12_000 * 2]
    assert left_out(frozenset(), Limit()) == []


def produce(source: KafkaSource, **more: Any) -> None:
    """One more record, of partition 0."""
    producer = Producer({"bootstrap.servers": source.bootstrap(), "log_level": 0})
    producer.produce(source.topic, b"{}", partition=0, timestamp=STAMP, **more)
    assert producer.flush(30) == 0


@pytest.mark.usefixtures("peeks")
def test_all_that_was_left_out_is_filled_in(source: KafkaSource, spark: SparkSession) -> None:
    send(source, 24_000, frozenset())
    produce(source, key=b"k", headers=HEADERS)
    with closing(KafkaSourceSession(source, "default/orders")) as session:
        span = session.plan({}, Limit())
        frame = session.frame(spark, span, ALL).where("_at < 0")
        batches = frame.toArrow().to_batches()
        (batch,) = with_large_values(batches, source, span.slices)
    (row,) = batch.to_pylist()
    assert row["_at"] == 12_000 * 2
    assert (row["body"], row["key"]) == (b"{}", b"k")
    assert row["timestamp"].timestamp() * 1000 == STAMP
    assert [(one["key"], one["value"]) for one in row["headers"]] == HEADERS


def test_a_worker_keeps_its_consumer(source: KafkaSource, peeks: dict[object, Peek]) -> None:
    send(source, 8, frozenset())
    kept = set()
    for offsets in ([0, 3], [2], [1, 2]):
        batches = list(large_records.read(source, 1, offsets))
        assert [json.loads(batch.column("body")[0].as_py())["id"] for batch in batches] == [
            2 * offset + 1 for offset in offsets
        ]
        (peek,) = peeks.values()
        assert peek._consumers is not None
        kept |= set(map(id, peek._consumers._idle))
    assert len(kept) == 1


@pytest.mark.usefixtures("peeks")
def test_a_record_without_a_value_is_no_silence(source: KafkaSource) -> None:
    settings = {"bootstrap.servers": source.bootstrap(), "log_level": 0}
    producer = Producer({**settings, "enable.idempotence": True})
    for value in (None, b"", b"last"):
        producer.produce(source.topic, value, partition=1)
    assert producer.flush(20) == 0
    batch = pa.concat_batches(list(large_records.read(source, 1, [0, 1, 2])))
    assert batch.column("body").to_pylist() == [None, b"", b"last"]


@pytest.mark.usefixtures("peeks")
def test_a_missing_record_is_a_transient_error(source: KafkaSource) -> None:
    send(source, 4, frozenset())
    with pytest.raises(TransientError, match="partition 1 offset 9: this large record was seen"):
        list(large_records.read(source, 1, [1, 9]))


def test_sql_of_frames_is_one_of_few_texts() -> None:
    """Spark compiles each of them."""
    texts = {large_records.is_large(n, Limit().bytes, ALL) for n in range(1, 20_000)}
    assert len(texts) < 30
    for most_bytes in (1_000_000, Limit().bytes, 2**40):
        most = min(2 * most_bytes, large_records.BATCH_BYTES)
        for records in (1, 2, 99, 1_500, 10_000, 10**6):
            bound = int(large_records.is_large(records, most_bytes, ALL).rsplit("> ", 1)[1])
            assert most / 2 <= bound * min(records, ARROW_RECORDS) <= most
