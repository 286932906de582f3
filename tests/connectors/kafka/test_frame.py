from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark import cloudpickle
from pyspark.errors import PySparkException

import devservers
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.kafka.source.frame import _TIMES, FrameReader
from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession
from dataflow_assets.contracts import Limit, OffsetSlice, Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Workers cannot import the tests, so what they run travels whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

FLOW = "default/orders"
ALL = frozenset({"key", "timestamp", "headers"})
Open = Callable[..., KafkaSourceSession]


@pytest.fixture
def opened(kafka: devservers.Kafka) -> Iterator[Open]:
    live: list[KafkaSourceSession] = []

    def open_session(topic: str, **config: Any) -> KafkaSourceSession:
        source = KafkaSource(brokers=(kafka.bootstrap,), topic=topic, **config)
        live.append(KafkaSourceSession(source, FLOW))
        return live[-1]

    yield open_session
    for session in live:
        session.close()


@pytest.fixture
def producer(kafka: devservers.Kafka) -> Producer:
    return Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})


def send(producer: Producer, topic: str, count: int, partition: int = 0) -> None:
    for number in range(count):
        if number % 50_000 == 0:
            producer.flush(20)
        producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(20) == 0


def partitions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row per Spark partition: its positions in order."""
    seen = [at for batch in batches for at in batch.column("_at").to_pylist()]
    if seen:
        yield pa.record_batch({"seen": pa.array([seen], pa.list_(pa.int64()))})


def positions(frame: DataFrame) -> list[list[int]]:
    frame = frame.mapInArrow(partitions, "seen array<long>")
    return sorted(row.seen for row in frame.collect())


def test_each_spark_partition_holds_one_slice_in_order(
    topic: Any, opened: Open, spark: SparkSession, producer: Producer
) -> None:
    name = topic(partitions=3)
    send(producer, name, 5, 0)
    send(producer, name, 4, 2)
    session = opened(name)
    span = session.plan({"0": 1}, Limit(records=3))
    frame = session.frame(spark, span, frozenset())
    assert frame.columns == ["_at", "body"]
    assert positions(frame) == [[2, 5, 8], [3, 6, 9]]


def test_a_huge_slice_is_not_split(
    topic: Any, opened: Open, spark: SparkSession, producer: Producer
) -> None:
    name = topic()
    send(producer, name, 120_000)
    session = opened(name)
    found = positions(session.frame(spark, session.plan({}, Limit()), frozenset()))
    assert found == [list(range(120_000))]


def test_a_recorded_span_keeps_its_own_order(
    topic: Any, opened: Open, spark: SparkSession, producer: Producer
) -> None:
    name = topic(partitions=2)
    send(producer, name, 2, 0)
    send(producer, name, 2, 1)
    span = Span((OffsetSlice("1", 0, 2), OffsetSlice("0", 1, 2)))
    assert positions(opened(name).frame(spark, span, frozenset())) == [[0, 2], [3]]


def test_the_wanted_columns_come_and_no_others(
    topic: Any, opened: Open, spark: SparkSession, producer: Producer
) -> None:
    name = topic(config={"retention.ms": "-1"})
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("b", None), ("a", b"2")]
    producer.produce(name, b"full", key=b"k", headers=headers, timestamp=1_000_500)
    producer.produce(name, None, key=b"", timestamp=2_000_000)
    producer.flush(20)
    session = opened(name)
    span = session.plan({}, Limit())
    rows = session.frame(spark, span, ALL).toArrow()
    assert rows.schema.names == ["_at", "body", "key", "timestamp", "headers"]
    assert rows["body"].to_pylist() == [b"full", None]
    assert rows["key"].to_pylist() == [b"k", b""]
    assert rows["timestamp"].to_pylist() == [
        datetime(1970, 1, 1, 0, 16, 40, 500_000, UTC),
        datetime(1970, 1, 1, 0, 33, 20, 0, UTC),
    ]
    sent = [{"key": name, "value": value} for name, value in headers]
    assert rows["headers"].to_pylist() == [sent, []]
    assert session.frame(spark, span, frozenset({"key"})).columns == ["_at", "body", "key"]


def test_an_empty_span_is_an_empty_frame(topic: Any, opened: Open, spark: SparkSession) -> None:
    session = opened(topic(partitions=2))
    frame = session.frame(spark, session.plan({}, Limit()), ALL)
    table = frame.toArrow()
    assert table.num_rows == 0
    assert table.schema.names == ["_at", "body", "key", "timestamp", "headers"]
    assert table.schema.field("_at").type == pa.int64()


def test_only_committed_records_are_read_and_markers_are_gaps(
    kafka: devservers.Kafka, topic: Any, opened: Open, spark: SparkSession
) -> None:
    name = topic()
    settings: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap, "transactional.id": name}
    producer = Producer(settings | {"log_level": 0})
    producer.init_transactions(30)
    for number, commit in enumerate((True, False, True, False)):
        producer.begin_transaction()
        producer.produce(name, str(number).encode(), partition=0)
        producer.flush(20)
        (producer.commit_transaction if commit else producer.abort_transaction)(20)
    session = opened(name)
    eventually(lambda: session.end() == {"0": 8})
    span = session.plan({}, Limit())
    begun = time.monotonic()
    table = session.frame(spark, span, frozenset()).toArrow()
    assert table["_at"].to_pylist() == [0, 4]
    gap = Span((OffsetSlice("0", 5, 8),))
    assert session.frame(spark, gap, frozenset()).toArrow().num_rows == 0
    assert time.monotonic() - begun < 15


def test_a_compacted_topic_has_gaps(
    topic: Any, opened: Open, spark: SparkSession, producer: Producer
) -> None:
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "1000",
    }
    name = topic(config=settings)
    for number in range(20):
        producer.produce(name, str(number).encode(), key=b"same", partition=0)
    producer.flush(20)
    time.sleep(0.3)
    producer.produce(name, b"last", key=b"other", partition=0)
    producer.flush(20)
    session = opened(name)
    span = session.plan({}, Limit())
    assert [(s.after, s.upto) for s in span.slices] == [(0, 21)]

    def bodies() -> list[bytes]:
        found: list[bytes] = session.frame(spark, span, frozenset()).toArrow()["body"].to_pylist()
        return found

    eventually(lambda: bodies() == [b"19", b"last"], 60)


def test_below_the_log_start_nothing_is_read_when_told_to_continue(
    kafka: devservers.Kafka, topic: Any, opened: Open, spark: SparkSession, producer: Producer
) -> None:
    name = topic()
    send(producer, name, 9)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for done in admin.delete_records([TopicPartition(name, 0, 6)]).values():
        done.result(20)
    session = opened(name, on_data_loss="continue")
    span = session.plan({"0": 2}, Limit())
    assert [(s.after, s.upto) for s in span.slices] == [(2, 9)]
    assert positions(session.frame(spark, span, frozenset())) == [[6, 7, 8]]


def test_an_end_beyond_the_log_fails_soon(
    topic: Any,
    opened: Open,
    spark: SparkSession,
    producer: Producer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topic()
    send(producer, name, 3)
    monkeypatch.setitem(_TIMES, "kafkaConsumer.pollTimeoutMs", "1000")
    begun = time.monotonic()
    with pytest.raises(PySparkException, match="lost"):
        opened(name).frame(spark, Span((OffsetSlice("0", 0, 9),)), frozenset()).toArrow()
    assert time.monotonic() - begun < 30


def test_the_group_is_stable_for_a_flow_and_its_topic(topic: Any, opened: Open) -> None:
    name = topic()
    groups = {option(opened(name)), option(opened(name)), option(opened(topic()))}
    assert len(groups) == 2


def option(session: KafkaSourceSession) -> str:
    return FrameReader(session._source, session._flow, session.topic.id).options({"0": (0, 1)})[
        "kafka.group.id"
    ]


def eventually(check: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)
