"""Tables of Tableflow on Kafka and a store: rows and field ids as readers by path see them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_httpfs
import duckdb_extension_iceberg
import fastavro
import pytest
from confluent_kafka import Producer
from pyiceberg.types import DoubleType, IntegerType, LongType
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.manifests.stored_tables import compare
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Report, Request
from dataflow_assets.sdk.sql_table.rejected import entries_of
from tests.conftest import Topics
from tests.languages.tableflow.files import FIELDS, Bucket, Tableflow

Run = Callable[[Flow], list[Report]]
NESTED: tuple[dict[str, Any], ...] = (
    {"name": "id", "id": 1, "type": "long"},
    {
        "name": "device",
        "id": 40,
        "type": "struct",
        "fields": [
            {"name": "model", "id": 9, "type": "string", "optional": True},
            {"name": "ratio", "id": 41, "type": "double"},
        ],
    },
    {
        "name": "cookies",
        "id": 20,
        "type": "list",
        "fields": [{"name": "element", "id": 21, "type": "string"}],
    },
    {
        "name": "attributes",
        "id": 22,
        "type": "map",
        "optional": True,
        "fields": [
            {"name": "key", "id": 24, "type": "string"},
            {"name": "value", "id": 23, "type": "long"},
        ],
    },
)
ROW = {
    "id": 1,
    "device": {"model": None, "ratio": 0.5},
    "cookies": ["a", "b"],
    "attributes": {"x": 1},
}
STORED = ROW | {"attributes": [("x", 1)]}
IDS = {
    "id": 1,
    "device": 40,
    "device.model": 9,
    "device.ratio": 41,
    "cookies": 20,
    "cookies.element": 21,
    "attributes": 22,
    "attributes.key": 24,
    "attributes.value": 23,
}


def _ids(table: Any) -> dict[str, int]:
    schema = table.schema()
    return {schema.find_column_name(number): number for number in schema.field_ids}


def test_rows_and_field_ids_are_those_of_the_file(
    file: Tableflow, kafka: devservers.Kafka, run: Run
) -> None:
    flow = file.write(fields=NESTED)
    file.produce(kafka, [ROW, ROW | {"id": 2, "attributes": None, "unknown": 1}])
    run(flow)
    assert sorted(file.rows(), key=lambda row: row["id"]) == [
        STORED,
        STORED | {"id": 2, "attributes": None},
    ]
    table = file.bucket.table(file.name)
    assert _ids(table) == IDS
    assert table.location() == f"{file.bucket.url}/warpstream/_tableflow/{file.name}"
    run(flow)
    assert len(file.rows()) == 2


def test_avro_with_and_without_the_head_of_a_registry(
    file: Tableflow, kafka: devservers.Kafka, run: Run
) -> None:
    flow = file.write(fields=NESTED, source_format="avro")
    source: Any = flow.source
    schema = fastavro.parse_schema(json.loads(source.avro_schema))

    def encoded(row: dict[str, Any], head: bytes) -> bytes:
        out = io.BytesIO(head)
        out.seek(len(head))
        fastavro.schemaless_writer(out, schema, row)
        return out.getvalue()

    rows = [(ROW, b"\0\0\0\0\x09"), (ROW | {"id": 2}, b"\0\0\0\x07\xff"), (ROW | {"id": 3}, b"")]
    file.produce(kafka, [encoded(row, head) for row, head in rows])
    run(flow)
    assert sorted(row["id"] for row in file.rows()) == [1, 2, 3]
    assert [{**row, "id": 1} for row in file.rows()] == [STORED] * 3


def test_what_does_not_fit_is_in_the_table_of_rejected_records(
    file: Tableflow, kafka: devservers.Kafka, run: Run
) -> None:
    """Also null where a list or map has only values, and where a field must be filled."""
    flow = file.write(fields=NESTED)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    producer.produce(file.topic, None, b"tombstone", partition=0)
    producer.flush(10)
    bad = [
        ROW | {"id": "text"},
        ROW | {"cookies": ["a", None]},
        ROW | {"attributes": {"x": None}},
        ROW | {"device": {"model": "m"}},
        {"id": 5},
        b"no json",
    ]
    file.produce(kafka, [ROW, *bad])
    run(flow)
    assert file.rows() == [STORED]
    rejected = file.rows(f"{file.name}_rejected")
    assert len(rejected) == 7
    assert {one.body for one in entries_of(rejected, None, 99)} == {
        None,
        *(one if isinstance(one, bytes) else json.dumps(one).encode() for one in bad),
    }


def test_by_hour_of_the_records_own_time(
    file: Tableflow, kafka: devservers.Kafka, run: Run
) -> None:
    flow = file.write(scheme="hour")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    border = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    times = [border - timedelta(milliseconds=1), border]
    for number in range(6):
        at = int(times[number % 2].timestamp() * 1000)
        body = json.dumps({"id": number}).encode()
        producer.produce(file.topic, body, partition=number // 3, timestamp=at)
    producer.flush(10)
    run(flow)
    rows = sorted(file.rows(), key=lambda row: row["id"])
    assert [row["_record_timestamp"] for row in rows] == times * 3
    table = file.bucket.table(file.name)
    (field,) = table.spec().fields
    assert (str(field.transform), field.source_id) == ("hour", 2_000_000_000)
    hour = int(border.timestamp()) // 3600
    found = {task.file.partition[0] for task in table.scan().plan_files()}
    assert found == {hour - 1, hour}
    with pytest.raises(PermanentError, match="partitioning_scheme is hour in the table"):
        run(file.write(scheme="unpartitioned"))


def test_partitions_of_every_kind(file: Tableflow, kafka: devservers.Kafka, run: Run) -> None:
    """By a column, and by what Iceberg makes of others; another one is refused afterwards."""
    terms = ["day(_record_timestamp)", "bucket(4, id)", "truncate(1, name)", "name"]
    flow = file.write(more={"partition_by": terms})
    file.produce(kafka, [{"id": n, "name": f"{'ab'[n % 2]}{n % 3}"} for n in range(12)])
    run(flow)
    table = file.bucket.table(file.name)
    assert [str(one.transform) for one in table.spec().fields] == [
        "day", "bucket[4]", "truncate[1]", "identity",
    ]  # fmt: skip
    assert sorted(row["id"] for row in file.rows()) == [*range(12)]
    by_name = table.scan(row_filter="name = 'a2'")
    assert {task.file.partition[3] for task in by_name.plan_files()} == {"a2"}
    (found,) = compare(load(file.write(more={"partition_by": terms[:2]}).file)).findings
    assert found.path == "tables[0].partition_by"
    assert found.message.startswith("partitioning_scheme is day of _record_timestamp, bucket[4] of")


def test_rows_leave_when_their_record_is_too_old(
    file: Tableflow, kafka: devservers.Kafka, run: Run
) -> None:
    flow = file.write(scheme="hour", more={"retention": "48h"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    now = datetime.now(UTC)
    for number, hours in enumerate((100, 50, 47, 0)):
        at = int((now - timedelta(hours=hours)).timestamp() * 1000)
        producer.produce(file.topic, json.dumps({"id": number}).encode(), timestamp=at)
    assert producer.flush(10) == 0
    run(flow)
    assert sorted(row["id"] for row in file.rows()) == [2, 3]
    file.produce(kafka, [{"id": 4}])
    run(flow)
    assert sorted(row["id"] for row in file.rows()) == [2, 3, 4]


def test_rows_of_a_compacted_topic_are_replaced_by_their_key(
    file: Tableflow, kafka: devservers.Kafka, engine: SparkSession
) -> None:
    """A later record of a key wins, and a tombstone deletes."""
    flow = file.write(more={"upsert_key": ["id"]})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})

    def send(*rows: tuple[int, str | None]) -> None:
        for key, name in rows:
            body = None if name is None else json.dumps({"id": key, "name": name}).encode()
            producer.produce(file.topic, body, str(key).encode())
        assert producer.flush(10) == 0
        list(drain(flow, lambda: engine, Request()))

    send((1, "a"), (2, "b"), (1, "c"))
    send((2, "d"), (3, "e"), (1, None))
    send()
    assert sorted(file.rows(), key=lambda row: row["id"]) == [
        {"id": 2, "name": "d"},
        {"id": 3, "name": "e"},
    ]
    table = file.bucket.table(file.name)
    assert table.schema().identifier_field_names() == {"id"}
    (found,) = compare(load(file.write(more={}).file)).findings
    assert found.message == "the key is id in the table, and cannot be changed"


FAR = (2**62, 400_000_000_000_000)
"""Milliseconds since 1970: beyond all microseconds, and in a year of five digits."""


def test_a_record_of_a_far_time_is_rejected(
    file: Tableflow, kafka: devservers.Kafka, topic: Topics, run: Run
) -> None:
    file.topic = topic(1, {"message.timestamp.after.max.ms": str(2**63 - 1)})
    flow = file.write(scheme="hour")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for number, at in enumerate((*FAR, 1_700_000_000_000)):
        producer.produce(file.topic, json.dumps({"id": number}).encode(), timestamp=at)
    assert producer.flush(10) == 0
    run(flow)
    assert [row["id"] for row in file.rows()] == [2]
    rejected = file.rows(f"{file.name}_rejected")
    assert {row["reason"] for row in rejected} == {"its times must be in the years 1 to 9999"}
    assert len(rejected) == 2


def test_a_record_of_a_far_time_is_rejected_among_many(
    file: Tableflow, kafka: devservers.Kafka, topic: Topics, engine: SparkSession
) -> None:
    """More than a small micro-batch: Spark's own reader would fail at its time."""
    file.topic = topic(1, {"message.timestamp.after.max.ms": str(2**63 - 1)})
    flow = file.write(scheme="hour")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for number in range(6_000):
        at = FAR[0] if number == 77 else 1_700_000_000_000
        producer.produce(file.topic, json.dumps({"id": number}).encode(), timestamp=at)
    assert producer.flush(30) == 0
    list(drain(flow, lambda: engine, Request()))
    assert sorted(row["id"] for row in file.rows()) == [n for n in range(6_000) if n != 77]
    (rejected,) = file.rows(f"{file.name}_rejected")
    assert rejected["offset"] == 77


@pytest.mark.parametrize("bucket", ["disk"], indirect=True)
def test_a_record_of_a_far_time_is_stored_among_many(
    file: Tableflow, kafka: devservers.Kafka, topic: Topics, spark: SparkSession
) -> None:
    """In a table that does not need its time. Spark's own reader fails at it all the same."""
    file.topic = topic(1, {"message.timestamp.after.max.ms": str(2**63 - 1)})
    flow = file.write()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for number in range(12_000):
        at = FAR[0] if number == 77 else 1_700_000_000_000
        producer.produce(file.topic, json.dumps({"id": number}).encode(), timestamp=at)
    assert producer.flush(30) == 0
    list(drain(flow, lambda: spark, Request()))
    assert sorted(row["id"] for row in file.rows()) == [*range(12_000)]


def test_an_engine_without_a_catalog_reads_it(
    file: Tableflow, kafka: devservers.Kafka, run: Run
) -> None:
    flow = file.write(fields=NESTED)
    for number in (1, 2):
        file.produce(kafka, [ROW | {"id": number}])
        run(flow)
    place = f"{file.bucket.url}/warpstream/_tableflow/{file.name}"
    found = _duckdb(file.bucket).sql(
        f"SELECT id, device.ratio, cookies, attributes['x'] FROM iceberg_scan('{place}') ORDER BY 1"
    )
    assert found.fetchall() == [(1, 0.5, ["a", "b"], 1), (2, 0.5, ["a", "b"], 1)]


def _duckdb(bucket: Bucket) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for package in (duckdb_extension_avro, duckdb_extension_httpfs, duckdb_extension_iceberg):
        (file,) = Path(package.__path__[0]).rglob("*.duckdb_extension")
        connection.load_extension(str(file))
    known = bucket.properties
    if known:
        endpoint = known["s3.endpoint"].removeprefix("http://")
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{known['s3.access-key-id']}', "
            f"SECRET '{known['s3.secret-access-key']}', ENDPOINT '{endpoint}', "
            f"URL_STYLE 'path', USE_SSL false, REGION '{known['s3.region']}')"
        )
    return connection


WIDER: tuple[dict[str, Any], ...] = (
    {"name": "id", "id": 3, "type": "long"},
    {"name": "name", "id": 7, "type": "string", "optional": True},
    {"name": "price", "id": 5, "type": "double", "optional": True},
)


def test_the_table_follows_the_file(file: Tableflow, kafka: devservers.Kafka, run: Run) -> None:
    """Files of before stay as they are, and are read by id."""
    first = ({**FIELDS[0]}, {**FIELDS[1], "optional": False})
    file.produce(kafka, [{"id": 1, "name": "a"}])
    run(file.write(fields=first))
    file.produce(kafka, [{"id": 2}])
    run(file.write(fields=FIELDS))
    file.produce(kafka, [{"id": 2**40, "price": 0.5}])
    run(file.write(fields=WIDER))
    assert sorted(file.rows(), key=lambda row: row["id"]) == [
        {"id": 1, "name": "a", "price": None},
        {"id": 2, "name": None, "price": None},
        {"id": 2**40, "name": None, "price": 0.5},
    ]
    table = file.bucket.table(file.name)
    assert len(table.schemas()) == 3
    assert [f.field_type for f in table.schema().fields][::2] == [LongType(), DoubleType()]
    assert table.schemas()[0].find_field(3).field_type == IntegerType()
