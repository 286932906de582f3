"""What reads rows in the order of their arrival sees that order, whatever their values."""

from __future__ import annotations

import json

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyiceberg.catalog import Catalog

import devservers
from dataflow_assets.connectors.clickhouse import client as clients
from tests import arrivals
from tests.conftest import Topics
from tests.contract.conftest import Case

BLOCKS = [[9, 7], [8, 1], [2, 6], [5]]
ORDER = [id_ for block in BLOCKS for id_ in block]


def test_postgresql(postgresql: devservers.PostgreSQL, schema: str) -> None:
    table = f"{schema}.target"
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"create table {table} (id int, {arrivals.IDENTITY})".encode())
        for id_ in ORDER:
            connection.execute(f"insert into {table} values ({id_})".encode())
    assert [row["id"] for row in arrivals.postgresql(postgresql.dsn(), table)] == ORDER


def test_clickhouse_also_after_a_merge(clickhouse: devservers.ClickHouse, database: str) -> None:
    with clients.connect(clickhouse.dsn(database), "tests") as client:
        client.command("CREATE TABLE target (id Int64) ENGINE = MergeTree ORDER BY tuple()")
        for block in BLOCKS[:2]:
            client.insert("target", [[id_] for id_ in block], ["id"])
        client.command("OPTIMIZE TABLE target FINAL")
        for block in BLOCKS[2:]:
            client.insert("target", [[id_] for id_ in block], ["id"])
        assert [row["id"] for row in arrivals.clickhouse(client, "target")] == ORDER


def test_iceberg(catalog: Catalog, namespace: str) -> None:
    schema = pa.schema([("id", pa.int64())])
    table = catalog.create_table((namespace, "target"), schema)
    assert arrivals.iceberg(table) == []
    for block in BLOCKS:
        table.append(pa.table({"id": block}, schema))
    assert [row["id"] for row in arrivals.iceberg(table)] == ORDER


def test_kafka(kafka: devservers.Kafka, topic: Topics) -> None:
    name = topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for id_ in ORDER:
        producer.produce(name, json.dumps({"id": id_}).encode(), partition=0)
    assert producer.flush(30) == 0
    assert arrivals.kafka(kafka.bootstrap, name) == [[{"id": id_} for id_ in ORDER]]


@pytest.mark.parametrize("arrived", [[1, 3, 2], [2, 1, 3], [3, 2, 1]])
def test_the_contract_suite_compares_the_order_within_a_partition(arrived: list[int]) -> None:
    rows, partitions = [(1, "a"), (2, "b"), (3, "c")], {1: 0, 2: 1, 3: 0}
    sequence = [rows[id_ - 1] for id_ in arrived]
    if arrived.index(1) < arrived.index(3):
        Case._expect_order(sequence, rows, partitions)
    else:
        with pytest.raises(AssertionError, match="partition 0"):
            Case._expect_order(sequence, rows, partitions)
