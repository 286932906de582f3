"""Spark's errors as one sentence, from a real server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import devservers
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession
from dataflow_assets.contracts import Limit
from dataflow_assets.spark import errors
from tests.conftest import Topics


@pytest.fixture
def read(kafka: devservers.Kafka, topic: Topics) -> Iterator[KafkaSourceSession]:
    name = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for _ in range(5):
        producer.produce(name, b"{}", partition=0)
    assert producer.flush(20) == 0
    source = KafkaSource(brokers=(kafka.bootstrap,), topic=name)
    session = KafkaSourceSession(source, "default/causes")
    yield session
    session.close()


@pytest.fixture
def admin(kafka: devservers.Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})


def why(frame: DataFrame, happens: Callable[[], object] = int) -> str:
    def work(batches: Iterable[Any]) -> Iterator[Any]:  # inside, so that it travels by value
        happens()
        yield from batches

    with pytest.raises(PySparkException) as caught:
        frame.mapInArrow(work, frame.schema).toArrow()
    return errors.sentence(caught.value)


def test_what_retention_took_meanwhile(
    read: KafkaSourceSession, spark: SparkSession, admin: AdminClient
) -> None:
    frame = read.frame(spark, read.plan({"0": 0}, Limit()), frozenset())
    name = read._source.topic
    for done in admin.delete_records([TopicPartition(name, 0, 3)]).values():
        done.result(20)
    told = why(frame)
    assert told.startswith(f"Could not read records in offset [0, 5) for topic partition {name}-0")
    assert told.endswith("; onDataLoss: continue goes on without what is gone")
    assert "failOnDataLoss" not in told


def test_a_topic_that_is_gone(
    read: KafkaSourceSession, spark: SparkSession, admin: AdminClient
) -> None:
    frame = read.frame(spark, read.plan({"0": 0}, Limit()), frozenset())
    name = read._source.topic
    admin.delete_topics([name])[name].result(20)
    assert why(frame) == "This server does not host this topic-partition"


def test_an_error_of_python(spark: SparkSession) -> None:
    def happens() -> None:
        raise KeyError("no such thing")

    assert why(spark.range(1), happens) == "KeyError: 'no such thing'"


def test_a_python_worker_that_dies(spark: SparkSession) -> None:
    told = why(spark.range(1), lambda: os._exit(3))
    assert told == "Python worker exited unexpectedly (crashed)"


def test_an_expression_that_fails(spark: SparkSession) -> None:
    told = why(spark.range(1).selectExpr("assert_true(id > 3, 'too small') AS x"))
    assert told == "too small"


def test_a_class_without_words_tells_its_innermost_cause() -> None:
    wrapped = (
        "org.apache.spark.SparkException\n\tat org.apache.spark.A.b(A.scala:1)\n"
        "Caused by: java.util.concurrent.ExecutionException\n\t... 3 more\n"
        "Caused by: java.io.IOException: No space left on device\n\tat java.base/c.D.e(D.java:2)\n"
    )
    assert errors.sentence(OSError(wrapped)) == "No space left on device"
    assert errors.sentence(OSError("a.b.CException\n\tat a.b(C.java:1)")) == "OSError"
