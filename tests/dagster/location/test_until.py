"""`until` in the launchpad: what came before a time is read, and nothing else."""

import json
from typing import Any

import dagster as dg
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.memory import MemoryPartSource, MemorySliceSink, Store
from dataflow_assets.contracts import Source
from dataflow_assets.flow import Branch, Flow
from tests.conftest import Topics
from tests.dagster.flows import location

HALF_A_MINUTE = "1970-01-01T00:00:30Z"


class Shop:
    """A flow from a topic whose records carry chosen times, or from another source."""

    def __init__(self, store: Store, instance: dg.DagsterInstance, spark: SparkSession) -> None:
        self.store, self.instance, self.spark = store, instance, spark
        self.name = store.name

    def run(self, source: Source, **config: Any) -> dg.ExecuteInProcessResult:
        sink = MemorySliceSink(store=self.name, table="orders")
        flow = Flow("default", "orders", source, (Branch(sink),), hash="h")
        return (
            location([flow], self.spark)
            .resolve_job_def("orders_job")
            .execute_in_process(
                run_config={"ops": {"orders": {"config": {"seconds": None, **config}}}},
                instance=self.instance,
                raise_on_error=False,
            )
        )

    def rows(self) -> list[int]:
        found = self.store.query("select row from rows where name = 'orders'")
        return sorted(json.loads(row)["id"] for (row,) in found)


@pytest.fixture
def shop(store: Store, instance: dg.DagsterInstance, engine: SparkSession) -> Shop:
    return Shop(store, instance, engine)


@pytest.fixture
def orders(kafka: devservers.Kafka, topic: Topics) -> KafkaSource:
    """Orders of the seconds 10, 20, 30 and 40 in one partition, 15 and 45 in the other."""
    name = topic(2, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for partition, seconds in ((0, (10, 20, 30, 40)), (1, (15, 45))):
        for second in seconds:
            body = json.dumps({"id": second, "name": "n"})
            producer.produce(name, body, partition=partition, timestamp=second * 1000)
    assert producer.flush(30) == 0
    return KafkaSource(brokers=(kafka.bootstrap,), topic=name, consumer_group=name)


def test_what_came_before_the_time_is_read_and_the_next_run_goes_on_there(
    shop: Shop, orders: KafkaSource
) -> None:
    result = shop.run(orders, until=HALF_A_MINUTE)
    event: Any = result.asset_materializations_for_node("orders")[0]
    assert shop.rows() == [10, 15, 20]
    assert event.metadata["checkpoint"].value["positions"] == {"0": 2, "1": 1}
    assert event.metadata["ended"].value == f"read up to {HALF_A_MINUTE}"
    assert event.metadata["lag_records"].value == 3
    assert shop.run(orders, until=HALF_A_MINUTE).success
    assert shop.run(orders, until="1970-01-01T00:00:12Z").success
    assert shop.rows() == [10, 15, 20]
    assert shop.run(orders, seconds=60.0, until="1970-01-01T00:00:45+00:00").success
    assert shop.rows() == [10, 15, 20, 30, 40]
    assert shop.run(orders, until="2999-01-01").success
    assert shop.rows() == [10, 15, 20, 30, 40, 45]


def test_a_stretch_of_time_is_read_again(shop: Shop, orders: KafkaSource) -> None:
    assert shop.run(orders).success
    stretch = {"timestamp": "1970-01-01T00:00:15Z", "until": HALF_A_MINUTE}
    assert shop.run(orders, start="timestamp", table="truncate", **stretch).success
    assert shop.rows() == [15, 20]


def test_what_is_no_time_is_refused_before_anything_is_truncated(
    shop: Shop, orders: KafkaSource
) -> None:
    assert shop.run(orders, until=HALF_A_MINUTE).success
    result = shop.run(orders, until="3600", start="earliest", table="truncate")
    assert "until '3600' is not a time; expected ISO 8601" in _error(result)
    assert shop.rows() == [10, 15, 20]


def test_a_table_that_is_read_as_it_stands_has_no_times(shop: Shop) -> None:
    source = MemoryPartSource(store=shop.name, topic="customers")
    assert "until cannot be used" in _error(shop.run(source, until=HALF_A_MINUTE))


def _error(result: dg.ExecuteInProcessResult) -> str:
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    data = failure.step_failure_data
    return f"{data.user_failure_data} {data.error}"
