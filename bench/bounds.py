"""What the same servers do without us: the figures that flows are compared with."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from bench import tables
from bench.messages import PARTITIONS
from bench.places import Places
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.contracts import Limit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHUNK = 1 << 20
ROWS = 500_000  # of one transaction of the plain upsert: what a micro-batch of a flow holds

# One connection in a process of its own, as psql would be: no interpreter lock between the two.
COPY = "from bench.bounds import copy; import sys; copy(*sys.argv[1:])"
UPSERT = "from bench.bounds import upsert; import sys; upsert(*sys.argv[1:])"


def consume(places: Places, topic: str, count: int) -> int:
    """Reads all messages with the plain client; the bytes of their values."""
    settings = {
        "bootstrap.servers": places.bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "fetch.message.max.bytes": 16 << 20,
        "queued.max.messages.kbytes": 256 << 10,
        "queued.min.messages": 500_000,
        "fetch.queue.backoff.ms": 5,  # by default a full queue makes it wait for a second
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    seen = size = 0
    while seen < count:
        messages = consumer.consume(10_000, 10)
        assert messages, "the topic ends early"
        seen += len(messages)
        size += sum(len(message.value() or b"") for message in messages)
    consumer.close()
    return size


def spark_count(places: Places, spark: SparkSession, topic: str) -> int:
    """Reads all messages with Spark into Python workers that only count them."""

    def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.record_batch([[struct.pack("<q", rows)]], ["result"])

    source = KafkaSource(brokers=(places.bootstrap,), topic=topic, starting_offsets="earliest")
    session = source.open("bench/count")
    position, total = session.start(), 0
    while not (span := session.plan(position, Limit())).empty:
        frame = session.frame(spark, span, frozenset())
        found = frame.mapInArrow(counted, "result binary").toArrow()
        total += sum(struct.unpack("<q", row)[0] for row in found.column("result").to_pylist())
        position = span.upto
    session.close()
    return total


def copy_all(places: Places, table: str, files: list[Path]) -> None:
    """COPY of prepared rows, each file on a connection of its own."""
    side_by_side([[COPY, places.dsn, table, str(file)] for file in files])


def upsert_all(places: Places, table: str, files: list[Path]) -> None:
    """The same through a temporary table and ON CONFLICT."""
    side_by_side([[UPSERT, places.dsn, table, str(file)] for file in files])


def side_by_side(programs: list[list[str]]) -> None:
    """Python programs with their arguments, each a process of its own; all must succeed."""
    started = [subprocess.Popen([sys.executable, "-c", *each]) for each in programs]
    assert [process.wait() for process in started] == [0] * len(started)


def copy(dsn: str, table: str, file: str) -> None:
    """One connection, one transaction."""
    query = f"COPY {table} FROM STDIN (FORMAT csv)"
    with (
        psycopg.connect(dsn) as connection,
        Path(file).open("rb") as rows,
        connection.cursor().copy(query) as sink,
    ):
        while chunk := rows.read(CHUNK):
            sink.write(chunk)


def upsert(dsn: str, table: str, file: str) -> None:
    """One connection; a transaction per as many rows as a micro-batch has."""
    sets = ", ".join(f"{name} = excluded.{name}" for name in tables.COLUMNS if name != "id")
    with psycopg.connect(dsn) as connection, Path(file).open("rb") as rows:
        connection.execute(
            f"CREATE TEMP TABLE staged ON COMMIT DELETE ROWS AS TABLE {table} WITH NO DATA"
        )
        while part := list(_lines(rows, ROWS)):
            with connection.cursor().copy("COPY staged FROM STDIN (FORMAT csv)") as sink:
                sink.write(b"".join(part))
            connection.execute(
                f"INSERT INTO {table} SELECT * FROM staged ON CONFLICT (id) DO UPDATE SET {sets}"
            )
            connection.commit()


def _lines(rows: Iterable[bytes], count: int) -> Iterator[bytes]:
    for _, line in zip(range(count), rows, strict=False):
        yield line
